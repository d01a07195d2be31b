#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""fuzz.py TREE BUILD PROFILES SECONDS RUNS TARGET...: which lines of the parsers the fuzz targets have run.

For fuzz.sh. A parser is a file, or what is left of it when functions are taken out that read nothing from outside; each is
named, with why. Exit 1 unless more than 90 % of the lines of each parser have run."""
import collections
import json
import os
import subprocess
import sys

LEAST = 90
WRITES = "writes, or works on what has been read"
WAITS = "opens, dials and waits: tests of its own"
OTHER = "of another target"

# target: [(what, file, only these functions or None, {why: functions that are taken out})]
PARSERS = {
    "hand": [("handshake", "lib/boot/hand.c", None, {})],
    "meet": [("notes of a rendezvous", "lib/boot/line.c", None, {WRITES: "rr_entry_write rr_join_write rr_entry_ways",
                                                          OTHER: "recv_sealed send_sealed rr_line_open"}),
             ("whom they come from", "lib/boot/loop.c", "index_of is_due whole ended take line_turn take_parked", {}),
             ("joining", "lib/boot/meet.c", "rr_meet_admit no_such_rank twice rr_meet_joined", {})],
    "seal": [("encrypted notes", "lib/boot/line.c", "recv_sealed", {}),
             ("encrypted lanes", "lib/transport/sealed.c", "hand_out open_record read_ahead sealed_recv", {}),
             ("records", "lib/boot/seal.c", "next_nonce rr_record_length rr_unseal_record", {})],
    "reunion": [("notes of a reunion", "lib/boot/reunion.c", "is_here learn lose admit is_sound hear_go hear_left hear listen_to "
                 "write_launch rr_launch_by_id rr_reunion_lost", {})],
    "id": [("unique ids", "lib/boot/id.c", "write_roots rr_unique_id_read", {}),
           ("root lists", "lib/boot/addr.c", "rr_address_read rr_address_text rr_root_port parse_decimal parse_root "
            "rr_host_is_numeric rr_roots_parse", {})],
    "exchange": [("ids through stores and spaces", "lib/boot/exchange.c", None, {})],
    "launch": [("PMI-1", "lib/boot/pmi.c", None, {"asks MPI, and the environment": "mpi_is_up rr_pmi_share"}),
               ("lists of nodes and tasks", "lib/boot/slurm.c", "digits next_range bracket_count bracket_text bracket_end "
                "item_count item_text item_end rr_slurm_host rr_slurm_tasks", {}),
               ("JSON of SageMaker", "lib/boot/cloud.c", "skip_blanks read_string skip_value rr_json_member rr_json_names "
                "sagemaker_place rr_sagemaker_file", {})],
    "environ": [("launchers' variables", "lib/boot/launchers.c", None, {}),
                ("Slurm's variables", "lib/boot/slurm.c", "first_of is_task local_tasks rr_slurm_look step_port rr_slurm_root", {}),
                ("clouds' variables", "lib/boot/cloud.c", None,
                 {OTHER: "skip_value rr_json_member rr_sagemaker_file", "opens a file that containers have": "sagemaker_by_file"}),
                ("places", "lib/boot/launch.c", None,
                 {"descriptors and ids: tests/unit": "take_root_fd rr_take_id has_own_key rr_launch_find"})],
    "pmix": [("PMIx's answers", "lib/boot/pmix.c", None, {"loads a library": "open_library find load"})],
    "key": [("keys", "lib/boot/key.c", None, {})],
    "link": [("frames", "lib/transport/frame.c", None, {WRITES: "rr_ask_out_of_step"}),
             ("links", "lib/transport/link_recv.c", None, {}),
             ("streams", "lib/transport/stream.c", "receive rr_stream_fill rr_stream_read_both take_read_ahead rr_stream_take "
              "rr_stream_skip", {})],
    "mux": [("channels", "lib/transport/mux.c", None, {}),
            ("channels' names", "lib/transport/channel.c", "rr_channel_find rr_channel_told rr_channel_recall rr_channel_remember "
             "rr_channel_asks", {}),
            ("messages", "lib/transport/talk.c", "rr_talk_taken first_of find take_off take pump rr_talk_recv is_gone", {})],
    "plugin": [("plug-ins' lanes and tables", "lib/transport/plugin.c", None,
                {"loads a library": "rr_plugin_find", WAITS: "prove_lanes rr_plugin_open"}),
               ("teams' tables and answers", "lib/transport/team.c", None, {"loads a library": "rr_team_find"}),
               ("plug-ins' names", "lib/transport/loader.c", "rr_plugin_is_name rr_plugin_folders find_file rr_plugin_check", {})],
    "card": [("cards", "lib/core/card.c", None, {})],
    "shared": [("descriptors of mates", "lib/transport/shm.c", "take_message take_many map_segment map_heap follow", {}),
               ("rings", "lib/transport/rings.c", "where find_ring get rr_rings_get", {})],
    "settings": [("settings", "lib/base/settings.c", None, {}),
                 ("faults on purpose", "lib/transport/faulty.c", "parse_one parse rr_faulty_wrap", {}),
                 ("interfaces and ports", "lib/boot/net.c", "read_prefix is_meant list_present pick_word pick read_ports", {}),
                 ("lists of CPUs", "lib/core/mover.c", "parse_cpus rr_mover_check", {})],
    "config": [("files of settings", "lib/base/settings_file.c", None, {"opens and reads": "read_all rr_settings_read_file"})],
    "tuning": [("tables of choices", "lib/core/tuning.c", None, {"opens and reads": "read_file rr_tuning_load", WRITES: "rr_tuning_fits"})],
    "question": [("questions", "lib/sim/question.c", None, {WRITES: "rr_question_machine rr_question_print"})],
    "dump": [("records of operations", "lib/core/dump.c", None, {WRITES: "copy_head rr_comm_dump rr_dump_copy"}),
             ("dumps", "tools/dumps.c", None, {"opens and reads": "add_file dumps_add_path"}),
             ("JSON", "tools/json.c", None, {WRITES: "is_plain print_scalar print_list has_only_scalars print_array print_member "
              "is_one_of print_object json_print json_print_without"})],
    "gradients": [("gradients of other ranks", "lib/fusion/table.c", None,
                   {WRITES: "write_to size_of exchange_lengths exchange_texts rr_agreement_go_on "
                    "rr_agreement_end"})],
    "hosts": [("hosts of ringred-run", "tools/run_hosts.c", None,
               {WRITES: "send_bytes send_note send_text send_number run_part_send run_root_send",
                WAITS: "listen_any address_text run_open_root"})],
}


def export(binary, profile, *options):
    return subprocess.run(["llvm-cov", "export", binary, "-instr-profile=" + profile, *options], capture_output=True, text=True,
                          check=True).stdout


def read(binary, profile):
    """For each file {line: times}, and {function: (first line, last)}."""
    lines, functions, file = collections.defaultdict(dict), collections.defaultdict(dict), None
    for text in export(binary, profile, "-format=lcov").splitlines():
        if text.startswith("SF:"):
            file = os.path.realpath(text[3:])
        elif text.startswith("DA:"):
            line, times = text[3:].split(",")[:2]
            lines[file][int(line)] = int(times)
    for f in json.loads(export(binary, profile))["data"][0]["functions"]:
        where = f["regions"][0]
        functions[os.path.realpath(f["filenames"][0])][f["name"].split(":")[-1]] = (where[0], where[2])
    return lines, functions


def spans(numbers):
    """"3-5, 9" of lines."""
    out = []
    for n in numbers:
        if out and out[-1][1] == n - 1:
            out[-1][1] = n
        else:
            out.append([n, n])
    return ", ".join("%d" % a if a == b else "%d-%d" % (a, b) for a, b in out)


def main():
    tree, build, profiles, seconds, runs, targets = *sys.argv[1:6], sys.argv[6:]
    parsers = all_lines = all_run = 0
    worst, good = 101.0, True
    for target in targets:
        if target not in PARSERS:
            print("%s: nobody has said which parsers it is for" % target)
            good = False
            continue
        lines, functions = read(os.path.join(build, "tests/fuzz/fuzz_drive_" + target), os.path.join(profiles, target + ".profile"))
        for what, file, only, out in PARSERS[target]:
            path = os.path.join(os.path.realpath(tree), file)
            # a name that a target has changed, so that two files fit into one
            there, left_out = functions[path], " ".join(out.values()).split()
            unknown = [f for f in (only or "").split() + left_out if f not in there]
            wanted = [f for f in there if (not only or f in only.split()) and f not in left_out]
            numbers = [n for n in sorted(lines[path]) if any(there[f][0] <= n <= there[f][1] for f in wanted)]
            run = sum(1 for n in numbers if lines[path][n])
            share = 100 * run / max(len(numbers), 1)
            print("%-30s %-28s %-9s %4d of %4d lines  %5.1f %%%s" % (
                what, file, target, run, len(numbers), share, "  FEWER" if share <= LEAST else ""))
            if run < len(numbers):
                print("    not run: " + spans([n for n in numbers if not lines[path][n]]))
            for why in out:
                print("    without %s: %s" % (out[why].replace(" ", ", "), why))
            if unknown:
                print("    there is no %s" % ", ".join(unknown))
            parsers, all_lines, all_run = parsers + 1, all_lines + len(numbers), all_run + run
            worst, good = min(worst, share), good and share > LEAST and not unknown
    print("%s: %d targets for %s s each, %s inputs, no finding; of %d parsers %.1f %% of the lines, of each at least %.1f %%"
          % ("holds" if good else "FAILS", len(targets), seconds, runs, parsers, 100 * all_run / max(all_lines, 1), worst))
    sys.exit(not good)


if __name__ == "__main__":
    main()
