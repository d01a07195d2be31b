/* SPDX-License-Identifier: Apache-2.0 */
/* Settings from anywhere: byte 0: as arguments, as the environment, or as the setting fault; then lines of
 * text. A refusal has a code and a sentence. */
#include "fuzz.h"

#include "boot/addr.h"
#include "transport/transport.h"

#include <stdlib.h>
#include <string.h>

#define LINES 16

extern char **environ;

static void must(bool claim)
{
    if (!claim)
        abort();
}

/* Cuts the text into lines, in place. */
static void cut(char *text, char **line)
{
    int n = 0;

    for (char *at = text; at && n < LINES; n++) {
        char *end = strchr(at, '\n');
        if (end)
            *end++ = 0;
        line[n] = at;
        at = end;
    }
    line[n] = NULL;
}

static void check_refusal(int rc, const ringred_error *why)
{
    must(rc < 0 && why->code == rc && why->text[0] && memchr(why->text, 0, sizeof why->text));
}

/* core/core.h does not go together with boot/addr.h */
int rr_mover_check(const struct rr_settings *settings, ringred_error *why);

/* What is read from a text that was taken as it is: interfaces, ports, CPUs. */
static void look_closely(const struct rr_settings *s)
{
    ringred_error why = { 0 };
    struct rr_net net;
    int rc = rr_net_open(s, &net, &why);

    if (rc < 0)
        check_refusal(rc, &why);
    else
        must(net.least <= net.most);
    rr_net_close(&net);
    why.code = 0;
    rc = rr_mover_check(s, &why);
    if (rc < 0)
        check_refusal(rc, &why);
}

static void load(char **line, bool as_environment)
{
    struct rr_settings *s = malloc(sizeof *s);
    char **kept = environ, *nothing = NULL, text[512];
    ringred_error why = { 0 };
    struct rr_text t = { text, sizeof text, 0 };

    must(s != NULL);
    environ = as_environment ? line : &nothing;
    int rc = rr_settings_load(s, as_environment ? NULL : (const char *const *)line, &why);
    environ = kept;
    if (rc != 0)
        check_refusal(rc, &why);
    else
        for (int i = 0; i < RR_SETTINGS; i++)
            must(memchr(s->value[i].text, 0, sizeof s->value[i].text) && s->value[i].origin[0]);
    if (rc == 0) {
        rr_settings_describe(s, &t);
        look_closely(s);
    }
    free(s);
}

static int no_close(struct rr_transport *t, uint64_t last, int64_t deadline_ns)
{
    (void)t, (void)last, (void)deadline_ns;
    return 0;
}

static void inject(const char *text, bool linked)
{
    static const struct rr_transport_ops ops = { .struct_size = sizeof ops, .name = "none", .close = no_close };
    struct rr_transport none = { .ops = &ops, .core = &none }, *links = linked ? &none : NULL;
    struct rr_settings *s = calloc(1, sizeof *s);
    struct rr_shared shared = { 0 };
    ringred_error why = { 0 };

    must(s != NULL);
    int rc = rr_settings_set(s, "fault", text, "argument", &why);
    if (rc == 0)
        rc = rr_faulty_wrap(2, 0, s, &links, &shared, &why);
    if (rc != 0)
        check_refusal(rc, &why);
    else if (linked)
        (void)links->ops->close(links, 0, 0);
    else
        free(shared.publish_context);
    free(s);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t bytes)
{
    char *line[LINES + 1];

    if (bytes < 1)
        return 0;
    char *text = malloc(bytes);
    must(text != NULL);
    memcpy(text, data + 1, bytes - 1);
    text[bytes - 1] = 0;
    cut(text, line);
    switch (data[0] % 4) {
    case 0:
        load(line, false);
        break;
    case 1:
        load(line, true);
        break;
    default:
        inject(line[0], data[0] & 1);
    }
    free(text);
    return 0;
}

size_t fuzz_seed(int which, uint8_t *to, size_t room)
{
    static const char *const seeds[] = {
        "\0transport=tcp\nstage=64K\nspin=-1\ntimeout=0.5\nkey=a secret of ours",
        "\0rank=3\nsize=4\nheap=1G\nlog=warn\nsegment=1M\nnumerics=fast",
        "\1RINGRED_TRANSPORT=shm\nRINGRED_KEY=a secret of ours\nPATH=/bin\nRINGRED_INIT_TIMEOUT=3e1",
        "\1RINGRED_LIBRARY=x\nRINGRED_STAGE=1048576\nRINGRED_TRACE=trace-%r",
        "\2kill:rank=0:after=10",
        "\2delay:rank=0:after=1:ms=20,drop:rank=1:after=7",
        "\3truncate:rank=0:after=2,kill:rank=0:after=100",
        "\0interface=lo,127.0.0.0/8,::1/128,127.0.0.1\nport_range=20000-20100\nprogress_cpus=0-1,3",
        "\0interface=127.0.0.1/33", "\0interface=no such", "\0port_range=7", "\0port_range=9-8", "\0progress_cpus=3-1",
        "\0interface=::1/129\nprogress_cpus=0-", "\0progress_cpus=x",
    };

    if (which >= (int)(sizeof seeds / sizeof *seeds) || room < 512)
        return 0;
    size_t bytes = 1 + strlen(seeds[which] + 1);
    memcpy(to, seeds[which], bytes);
    return bytes;
}
