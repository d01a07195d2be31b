/* SPDX-License-Identifier: Apache-2.0 */
/* What launchers say: byte 0: a list of hosts, a list of tasks, JSON, or the lines of a PMI-1 server. */
#include "fuzz.h"

#include "boot/launch.h"

#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

static void must(bool claim)
{
    if (!claim)
        abort();
}

static void hosts(const char *text)
{
    char host[RR_HOST_BYTES];
    int here, all;

    for (long n = 0; n < 4; n++)
        if (rr_slurm_host(text, n * n * n, host))
            must(memchr(host, 0, sizeof host) && host[0]);
    for (int node = 0; node < 3; node++)
        if (rr_slurm_tasks(text, node, &here, &all))
            must(all >= 0 && here >= -1 && (here < 0 || here <= all));
}

static void json(const char *text, size_t bytes)
{
    struct rr_place p = { .rank = -1 };
    char first[RR_HOST_BYTES];
    ringred_error why = { 0 };
    size_t length;
    int at;

    const char *value = rr_json_member(text, bytes, "hosts", &length);
    must(!value || (value >= text && value + length <= text + bytes));
    int count = rr_json_names(text, bytes, "b", &at, first);
    must(count < 0 || (at < count && memchr(first, 0, sizeof first)));
    int rc = rr_sagemaker_file(text, bytes, &p, first, &why);
    must(rc < 0 ? why.text[0] != 0 : p.rank >= 0 && p.rank < p.size);
}

/* The server has said all of it before it was asked anything, and then hangs up. */
static void pmi(const char *text, size_t bytes, int rank)
{
    char out[600] = "an id", value[64];
    ringred_error why = { 0 };
    int pair[2];

    (void)rr_pmi_value(text, "value", value, sizeof value);
    must(socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, pair) == 0);
    must(send(pair[1], text, bytes, MSG_NOSIGNAL) == (ssize_t)bytes || bytes == 0);
    must(shutdown(pair[1], SHUT_WR) == 0);
    int rc = rr_pmi_talk(pair[0], false, rank, out, sizeof out, rr_deadline(RINGRED_SECOND), &why);
    must(rc == 0 ? memchr(out, 0, sizeof out) != NULL : rc < 0 && why.code == rc && why.text[0]);
    close(pair[0]);
    close(pair[1]);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t bytes)
{
    if (bytes < 1)
        return 0;
    char *text = malloc(bytes); /* exactly, with a zero behind it */
    must(text != NULL);
    memcpy(text, data + 1, bytes - 1);
    text[bytes - 1] = 0;
    switch (data[0] % 4) {
    case 0:
        hosts(text);
        break;
    case 1:
        json(text, bytes - 1);
        break;
    default:
        pmi(text, bytes - 1, data[0] & 1);
    }
    free(text);
    return 0;
}

size_t fuzz_seed(int which, uint8_t *to, size_t room)
{
#define HELLO "cmd=response_to_init pmi_version=1 pmi_subversion=1 rc=0\ncmd=maxes kvsname_max=256 keylen_max=64 " \
              "vallen_max=64\ncmd=my_kvsname kvsname=kvs_1_0\n"
    static const char *const seeds[] = {
        "\0n[08-11,13],r[0-1]x[1-2]-ib,z",
        "\0" "2(x3),1,4(x2)",
        "\1[\"a\", \"b\",\"c\"]",
        "\1{\"current_host\":\"b\",\"x\":[1,{\"y\":\"]}\"}],\"hosts\":[\"a\",\"b\"]}",
        "\2" HELLO "cmd=put_result rc=0 msg=success\ncmd=put_result rc=0 msg=success\ncmd=barrier_out rc=0\n"
        "cmd=finalize_ack rc=0\n",
        "\3" HELLO "cmd=barrier_out rc=0\ncmd=get_result rc=0 msg=success value=8\ncmd=get_result rc=0 value=12345678\n"
        "cmd=finalize_ack rc=0\n",
    };

    if (which >= (int)(sizeof seeds / sizeof *seeds) || room < 1024)
        return 0;
    size_t n = 1 + strlen(seeds[which] + 1);
    memcpy(to, seeds[which], n);
    return n;
}
