/* SPDX-License-Identifier: Apache-2.0 */
/* The doors to memory and to what this library is. */
#include "core/core.h"

int32_t ringred_alloc(ringred_comm *comm, size_t bytes, void **memory)
{
    ringred_error why;

    if (!comm)
        return RINGRED_EINVAL;
    if (!memory)
        return rr_comm_refuse(comm, RINGRED_EINVAL, "alloc: memory is NULL: where should it go?");
    if (comm->family->forks != rr_forks())
        return RINGRED_EFORKED;
    int rc = rr_heap_alloc(comm->family->shared, bytes, memory, &why);
    return rc < 0 ? rr_comm_refuse(comm, rc, "%s", why.text) : rc;
}

int32_t ringred_free(void *memory)
{
    return memory ? rr_heap_free(memory) : RINGRED_OK;
}

const char *ringred_version(void)
{
    return RINGRED_VERSION;
}

int32_t ringred_abi_version(void)
{
    return RINGRED_ABI_VERSION;
}

int64_t ringred_describe(char *text, size_t room)
{
    struct rr_text t = { text, room, 0 };
    struct rr_settings settings;
    ringred_error why;

    if (room && !text)
        return RINGRED_EINVAL;
    if (room)
        text[0] = 0;
    rr_text_add(&t, "{\"version\":\"%s\",\"abi\":%d,\"plugin_abi\":%d,\"wire\":%d,\"kernels\":\"%s\",",
                RINGRED_VERSION, RINGRED_ABI_VERSION, RINGRED_PLUGIN_ABI_VERSION, RR_WIRE_VERSION,
                rr_reduce_name());
    rr_text_add(&t, "\"compiler\":\"%s\",\"transports\":[{\"name\":\"self\",\"usable\":true},",
                __VERSION__);
    rr_text_add(&t, "{\"name\":\"shm\",\"usable\":true},{\"name\":\"tcp\",\"usable\":true},"
                    "{\"name\":\"ofi\",\"usable\":false,\"why\":\"not in this release\"},"
                    "{\"name\":\"nccl\",\"usable\":false,\"why\":\"not in this release\"}");
    rr_plugins_describe(RR_PLUGIN_TRANSPORT, 1, &t);
    rr_text_add(&t, "],\"teams\":[");
    rr_plugins_describe(RR_PLUGIN_TEAM, 0, &t);
    rr_text_add(&t, "],\"plugin_path\":");
    rr_text_add_json(&t, rr_plugin_folders());
    rr_text_add(&t, ",");
    rr_text_add(&t, "\"algorithms\":");
    rr_algorithms_describe(&t);
    rr_text_add(&t, ",");
    if (rr_settings_load(&settings, NULL, &why) < 0) {
        rr_text_add(&t, "\"error\":");
        rr_text_add_json(&t, why.text);
    } else {
        rr_text_add(&t, "\"launcher\":");
        rr_launch_describe(&settings, &t);
        rr_text_add(&t, ",\"settings\":");
        rr_settings_describe(&settings, &t);
    }
    rr_text_add(&t, "}");
    return (int64_t)t.used;
}

/* The answer's length, or, after a failure, its status with the sentence as the text. */
static int64_t answer_or_why(int rc, struct rr_text *t, const ringred_error *why)
{
    if (rc == 0)
        return (int64_t)t->used;
    t->used = 0;
    rr_text_add(t, "%s", why->text);
    return rc;
}

static bool is_askable(const char *question, char *text, size_t room)
{
    if (!question || (room && !text))
        return false;
    if (room)
        text[0] = 0;
    return true;
}

int64_t ringred_simulate(const char *question, char *text, size_t room)
{
    struct rr_text t = { text, room, 0 };
    ringred_error why = { .struct_size = sizeof why };

    return is_askable(question, text, room) ? answer_or_why(rr_simulate_answer(question, &t, &why), &t, &why)
                                            : RINGRED_EINVAL;
}

int64_t ringred_dump_process(int32_t pid, int32_t which, char *text, size_t room)
{
    struct rr_text t = { text, room, 0 };
    ringred_error why = { .struct_size = sizeof why };

    return is_askable("", text, room) ? answer_or_why(rr_dump_process(pid, which, &t, &why), &t, &why) : RINGRED_EINVAL;
}

int64_t ringred_explain(const char *question, const char *const *settings, char *text, size_t room)
{
    struct rr_text t = { text, room, 0 };
    ringred_error why = { .struct_size = sizeof why };

    return is_askable(question, text, room)
               ? answer_or_why(rr_explain_answer(question, settings, &t, &why), &t, &why)
               : RINGRED_EINVAL;
}
