/* SPDX-License-Identifier: Apache-2.0 */
/* Putting dumps together; see dumps.h. */
#include "dumps.h"

#include "json.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <stdarg.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#define BYTES_MOST ((size_t)64 << 20) /* of a file */
#define RANKS_MOST 4096
#define COMMUNICATORS_MOST 1024 /* of a rank: the library records fewer */
#define LAST 64 /* operations of a rank that are looked at: as many as the library keeps */

/* One rank's. Values are places in its text. */
struct dump {
    char file[256], job[32], host[80], time[40];
    long rank, size, pid;
    const char *error;          /* NULL: it has not failed */
    const char *communicators;
};

struct operation {
    unsigned long long number;
    const char *what, *begun;
    bool done;
    int view;                   /* whose */
};

/* A communicator as one rank has it. */
struct view {
    const struct dump *dump;
    char name[80];
    const char *at;
    unsigned long long last;    /* its last operation; 0: none */
    bool done;                  /* it has ended */
    const char *what, *begun;   /* of that one */
};

struct dumps {
    FILE *complaints;
    char **text;
    struct dump *dump;
    struct view *view;
    size_t texts, used, views;
};

struct dumps *dumps_new(FILE *complaints)
{
    struct dumps *d = calloc(1, sizeof *d);

    if (d)
        d->complaints = complaints;
    return d;
}

void dumps_free(struct dumps *d)
{
    for (size_t i = 0; d && i < d->texts; i++)
        free(d->text[i]);
    if (d) {
        free(d->text);
        free(d->dump);
        free(d->view);
    }
    free(d);
}

/* Room for one more; NULL: no memory. */
static void *more(void *array, size_t used, size_t bytes)
{
    return used & (used - 1) ? array : realloc(array, (used ? 2 * used : 1) * bytes);
}

/* A text that may come from anywhere, and ends up on a terminal. */
static const char *plain_text(const char *value, char *room, size_t bytes)
{
    json_text(value, room, bytes);
    for (char *c = room; *c; c++)
        if ((unsigned char)*c < ' ' || *c == 0x7f)
            *c = '?';
    return room;
}

/* -1: it is no number from 0 to `most`. */
static long number_of(const char *object, const char *key, long most)
{
    char text[24], *end;
    const char *value = json_member(object, key);
    long n = value ? strtol(json_text(value, text, sizeof text), &end, 10) : -1;

    return value && *value != '"' && *text && !*end && n >= 0 && n <= most ? n : -1;
}

/* ---- taking them ---- */

static bool __attribute__((format(printf, 3, 4))) refuse(const struct dumps *d, const char *file, const char *format, ...)
{
    va_list arguments;

    if (!d->complaints)
        return false;
    fprintf(d->complaints, "ringred-info: %s: ", file);
    va_start(arguments, format);
    vfprintf(d->complaints, format, arguments);
    va_end(arguments);
    fputc('\n', d->complaints);
    return false;
}

static bool read_dump(const struct dumps *d, const char *file, const char *at, struct dump *one)
{
    char schema[32];
    const char *communicators = json_member(at, "communicators");

    plain_text(json_member(at, "schema"), schema, sizeof schema);
    if (strcmp(schema, "ringred-dump"))
        return refuse(d, file, "it is no dump of libringred (its schema is \"%s\")", schema);
    if (number_of(at, "version", 1) != 1)
        return refuse(d, file, "it is a dump of another version: this program reads version 1");
    *one = (struct dump){ .rank = number_of(at, "rank", RANKS_MOST - 1), .size = number_of(at, "size", RANKS_MOST),
                          .pid = number_of(at, "pid", LONG_MAX), .error = json_member(at, "error"),
                          .communicators = communicators };
    if (one->rank < 0 || one->rank >= one->size || !communicators || *communicators != '[')
        return refuse(d, file, "it does not say which rank it is of, or of which communicators");
    snprintf(one->file, sizeof one->file, "%s", file);
    plain_text(json_member(at, "job"), one->job, sizeof one->job);
    plain_text(json_member(at, "host"), one->host, sizeof one->host);
    plain_text(json_member(at, "time"), one->time, sizeof one->time);
    return true;
}

static bool is_same_process(const struct dump *a, const struct dump *b)
{
    return a->pid == b->pid && !strcmp(a->host, b->host);
}

/* Of two of one rank the later counts. */
static bool keep(struct dumps *d, const struct dump *one)
{
    for (size_t i = 0; i < d->used; i++) {
        struct dump *other = &d->dump[i];
        if (other->rank != one->rank || strcmp(other->job, one->job))
            continue;
        bool later = strcmp(one->time, other->time) > 0;
        if (!is_same_process(one, other))
            (void)refuse(d, one->file, "rank %ld is in %s, too (pid %ld on %s, and pid %ld on %s): the later one counts, %s",
                         one->rank, other->file, one->pid, one->host, other->pid, other->host,
                         later ? one->file : other->file);
        if (later)
            *other = *one;
        return true;
    }
    struct dump *longer = more(d->dump, d->used, sizeof *longer);
    if (!longer)
        return refuse(d, one->file, "no memory");
    d->dump = longer;
    d->dump[d->used++] = *one;
    return true;
}

bool dumps_add(struct dumps *d, const char *file, const char *text, size_t bytes)
{
    char **longer = more(d->text, d->texts, sizeof *longer), *copy = bytes < SIZE_MAX ? malloc(bytes + 1) : NULL;
    bool any = false;

    d->text = longer ? longer : d->text;
    if (!longer || !copy) {
        free(copy);
        return refuse(d, file, "no memory");
    }
    d->text[d->texts++] = copy;
    memcpy(copy, text, bytes);
    copy[bytes] = 0;
    if (strlen(copy) != bytes)
        return refuse(d, file, "it is no text");
    for (const char *at = json_skip_space(copy); *at || !any;) {
        const char *end = json_whole(at);
        struct dump one;
        if (!end)
            return refuse(d, file, *at ? "it is no JSON, or ends in the middle" : "it is empty");
        if (!read_dump(d, file, at, &one) || !keep(d, &one))
            return false;
        any = true;
        at = json_skip_space(end);
    }
    return true;
}

static bool add_file(struct dumps *d, const char *path)
{
    int fd = open(path, O_RDONLY | O_CLOEXEC | O_NONBLOCK);
    struct stat s;
    size_t used = 0;

    if (fd < 0 || fstat(fd, &s)) {
        if (fd >= 0)
            close(fd);
        return refuse(d, path, "%s", strerror(errno));
    }
    char *text = S_ISREG(s.st_mode) && (size_t)s.st_size <= BYTES_MOST ? malloc((size_t)s.st_size + 1) : NULL;
    for (ssize_t n; text && used < (size_t)s.st_size; used += (size_t)n)
        if ((n = read(fd, text + used, (size_t)s.st_size - used)) <= 0)
            break;
    close(fd);
    bool taken = text ? dumps_add(d, path, text, used) : refuse(d, path, "it is no file, or larger than any dump");
    free(text);
    return taken;
}

bool dumps_add_path(struct dumps *d, const char *path)
{
    DIR *folder = opendir(path);
    bool all = true, any = false;

    if (!folder)
        return add_file(d, path);
    for (struct dirent *e; (e = readdir(folder));) {
        const char *dot = strrchr(e->d_name, '.');
        char inside[4096];
        if (e->d_name[0] == '.' || !dot || strcmp(dot, ".json"))
            continue;
        any = true;
        all = (size_t)snprintf(inside, sizeof inside, "%s/%s", path, e->d_name) < sizeof inside && add_file(d, inside) && all;
    }
    closedir(folder);
    return any ? all : refuse(d, path, "no file *.json is in this folder");
}

/* ---- looking at them ---- */

static int by_name(const void *a, const void *b)
{
    const struct view *x = a, *y = b;
    int names = strcmp(x->name, y->name);

    return names ? names : (x->dump->rank > y->dump->rank) - (x->dump->rank < y->dump->rank);
}

static bool find_views(struct dumps *d)
{
    for (size_t i = 0; i < d->used; i++) {
        int n = 0;
        for (const char *at = json_first(d->dump[i].communicators); at && n < COMMUNICATORS_MOST; at = json_after(at), n++) {
            struct view *longer = more(d->view, d->views, sizeof *longer);
            if (!longer)
                return false;
            d->view = longer;
            d->view[d->views] = (struct view){ .dump = &d->dump[i], .at = at };
            plain_text(json_member(at, "name"), d->view[d->views].name, sizeof d->view->name);
            d->views++;
        }
    }
    if (d->views)
        qsort(d->view, d->views, sizeof *d->view, by_name);
    return true;
}

/* A communicator. */
struct group {
    struct view *view;          /* in order of ranks of the job */
    size_t views;
    struct operation *operation; /* of all, in order of numbers */
    size_t operations;
};

static int by_number(const void *a, const void *b)
{
    const struct operation *x = a, *y = b;

    return x->number != y->number ? (x->number > y->number) - (x->number < y->number) : (x->view > y->view) - (x->view < y->view);
}

static void add_operation(struct group *g, int view, const char *at)
{
    char text[24], state[16];
    const char *number = json_member(at, "number");
    struct view *v = &g->view[view];
    struct operation *o = &g->operation[g->operations];

    *o = (struct operation){ .number = strtoull(json_text(number, text, sizeof text), NULL, 10), .view = view,
                             .what = json_member(at, "what"), .begun = json_member(at, "begun") };
    json_text(json_member(at, "state"), state, sizeof state);
    o->done = !strcmp(state, "done");
    if (!o->number || !o->what)
        return;
    g->operations++;
    if (o->number < v->last)
        return;
    v->last = o->number;
    v->done = o->done;
    v->what = o->what;
    v->begun = o->begun;
}

static bool find_operations(struct group *g)
{
    g->operation = calloc(g->views, LAST * sizeof *g->operation);
    if (!g->operation)
        return false;
    for (size_t i = 0; i < g->views; i++) {
        int n = 0;
        for (const char *at = json_first(json_member(g->view[i].at, "operations")); at && n < LAST; at = json_after(at), n++)
            add_operation(g, (int)i, at);
    }
    qsort(g->operation, g->operations, sizeof *g->operation, by_number);
    size_t used = 0;
    for (size_t i = 0; i < g->operations; i++) /* once for each rank */
        if (!used || by_number(&g->operation[i], &g->operation[used - 1]))
            g->operation[used++] = g->operation[i];
    g->operations = used;
    return true;
}

/* Those of an array that are ranks. */
static void add_ranks(const char *array, bool *which)
{
    for (const char *at = json_first(array); at; at = json_after(at)) {
        char text[24], *end;
        long rank = strtol(json_text(at, text, sizeof text), &end, 10);
        if (*text && !*end && rank >= 0 && rank < RANKS_MOST)
            which[rank] = true;
    }
}

/* The ranks of the job that belong to it, as the first who tells says. */
static void find_members(const struct group *g, bool *member)
{
    memset(member, 0, RANKS_MOST * sizeof *member);
    for (size_t i = 0; i < g->views; i++)
        member[g->view[i].dump->rank] = true;
    add_ranks(json_member(g->view[0].at, "members"), member);
}

/* ---- what is to be said ---- */

enum finding { NOTHING, TOGETHER, NO_DUMP, BEHIND, DISAGREE };
static const char *const findings[] = { "nothing", "together", "no dump", "never began", "disagreement" };

struct verdict {
    enum finding finding;
    unsigned long long operation;
    bool blamed[RANKS_MOST];
    char *text;
    size_t length;
    FILE *out;                  /* that writes text */
};

static int count(const bool *which)
{
    int n = 0;

    for (int r = 0; r < RANKS_MOST; r++)
        n += which[r];
    return n;
}

/* "rank 3", "ranks 0-2, 5" */
static void say_ranks(FILE *out, const bool *which)
{
    int said = 0;

    fputs(count(which) == 1 ? "rank " : "ranks ", out);
    for (int r = 0; r < RANKS_MOST; r++) {
        int last = r;
        if (!which[r])
            continue;
        while (last + 1 < RANKS_MOST && which[last + 1])
            last++;
        fprintf(out, said++ ? ", %d" : "%d", r);
        if (last > r)
            fprintf(out, last > r + 1 ? "-%d" : ", %d", last);
        r = last;
    }
}

static bool is_empty(const bool *which)
{
    return memchr(which, true, RANKS_MOST) == NULL;
}

/* Do ranks have different words for one operation? */
static bool is_disagreement(const struct operation *first, size_t n)
{
    char mine[256], other[256];

    plain_text(first->what, mine, sizeof mine);
    for (size_t i = 1; i < n; i++)
        if (strcmp(mine, plain_text(first[i].what, other, sizeof other)))
            return true;
    return false;
}

static void say_disagreement(const struct group *g, const struct operation *first, size_t n, struct verdict *v)
{
    bool most[RANKS_MOST] = { false };
    int said = 0;

    fprintf(v->out, "operation %llu: ", first->number);
    for (size_t i = 0; i < n; i++) { /* each words once, with all who gave them */
        bool same[RANKS_MOST] = { false }, new = true;
        char mine[256], other[256];
        plain_text(first[i].what, mine, sizeof mine);
        for (size_t j = 0; j < n; j++) {
            bool equal = !strcmp(mine, plain_text(first[j].what, other, sizeof other));
            new = new && !(equal && j < i);
            same[g->view[first[j].view].dump->rank] |= equal;
        }
        if (!new)
            continue;
        if (count(same) > count(most))
            memcpy(most, same, sizeof most);
        if (said++ == 8) {
            fputs(", and others for more", v->out);
            break;
        }
        fputs(said > 1 ? ", " : "", v->out);
        say_ranks(v->out, same);
        fprintf(v->out, "%s %s", said > 1 ? " for" : " asked for", mine);
    }
    v->finding = DISAGREE;
    v->operation = first->number;
    for (size_t i = 0; i < n; i++) /* all but the most */
        v->blamed[g->view[first[i].view].dump->rank] = !most[g->view[first[i].view].dump->rank];
}

static bool find_disagreement(const struct group *g, struct verdict *v)
{
    for (size_t i = 0, n; i < g->operations; i += n) {
        for (n = 1; i + n < g->operations && g->operation[i + n].number == g->operation[i].number; n++)
            continue;
        if (!is_disagreement(&g->operation[i], n))
            continue;
        say_disagreement(g, &g->operation[i], n, v);
        return true;
    }
    return false;
}

/* The operation that somebody is in and nobody is behind, of those that are in one; NULL: nobody is in any. */
static const struct view *first_waiting(const struct group *g)
{
    const struct view *first = NULL;

    for (size_t i = 0; i < g->views; i++)
        if (g->view[i].last && !g->view[i].done && (!first || g->view[i].last < first->last))
            first = &g->view[i];
    return first;
}

static void say_waiting(const struct group *g, const struct view *w, struct verdict *v)
{
    bool waiting[RANKS_MOST] = { false };
    char what[256], time[40], since[40] = "";

    for (size_t i = 0; i < g->views; i++) {
        if (g->view[i].last != w->last || g->view[i].done)
            continue;
        waiting[g->view[i].dump->rank] = true;
        plain_text(g->view[i].begun, time, sizeof time);
        if (!*since || strcmp(time, since) < 0)
            snprintf(since, sizeof since, "%s", time);
    }
    fprintf(v->out, "operation %llu, %s, and others wait", w->last, plain_text(w->what, what, sizeof what));
    fprintf(v->out, " in it since %s: ", since);
    say_ranks(v->out, waiting);
    v->operation = w->last;
}

static void find_absent(const struct group *g, const bool *no_dump, struct verdict *v)
{
    const struct view *w = first_waiting(g);
    bool behind[RANKS_MOST] = { false };
    unsigned long long most = 0;

    for (size_t i = 0; i < g->views; i++)
        most = g->view[i].last > most ? g->view[i].last : most;
    for (size_t i = 0; i < g->views; i++)
        behind[g->view[i].dump->rank] = g->view[i].last < (w ? w->last : most);
    if (w && !is_empty(no_dump)) {
        v->finding = NO_DUMP;
        memcpy(v->blamed, no_dump, sizeof v->blamed);
        fputs("no dump of ", v->out);
        say_ranks(v->out, no_dump);
        fputs(", which may not have begun ", v->out);
        say_waiting(g, w, v);
        if (!is_empty(behind)) {
            fputs("; nor have begun it: ", v->out);
            say_ranks(v->out, behind);
        }
    } else if (!is_empty(behind)) {
        v->finding = BEHIND;
        memcpy(v->blamed, behind, sizeof behind);
        say_ranks(v->out, behind);
        fputs(" never began ", v->out);
        if (w)
            say_waiting(g, w, v);
        else
            fprintf(v->out, "operation %llu, which others have ended", v->operation = most);
    } else if (w) {
        v->finding = TOGETHER;
        fputs("no rank is missing in ", v->out);
        say_waiting(g, w, v);
    } else {
        fprintf(v->out, "no rank is in an operation; the last was %llu", v->operation = most);
    }
}

static bool judge(struct group *g, const bool *no_dump, struct verdict *v)
{
    memset(v, 0, sizeof *v);
    v->out = open_memstream(&v->text, &v->length);
    if (!v->out)
        return false;
    if (!find_disagreement(g, v))
        find_absent(g, no_dump, v);
    return fclose(v->out) == 0;
}

/* ---- saying it ---- */

static void put_text(FILE *out, const char *text)
{
    fputc('"', out);
    for (; *text; text++)
        fprintf(out, *text == '"' || *text == '\\' ? "\\%c" : "%c", *text);
    fputc('"', out);
}

static void put_ranks(FILE *out, const char *key, const bool *which)
{
    int n = 0;

    fprintf(out, "\"%s\":[", key);
    for (int r = 0; r < RANKS_MOST; r++)
        if (which[r])
            fprintf(out, n++ ? ",%d" : "%d", r);
    fputs("]", out);
}

static void show_rank(FILE *out, const struct view *v)
{
    char what[256], begun[40];
    bool missing[RANKS_MOST] = { false };

    fprintf(out, "    rank %ld, pid %ld on %s: ", v->dump->rank, v->dump->pid, v->dump->host);
    if (!v->last) {
        fputs("no operation\n", out);
        return;
    }
    fprintf(out, "%s operation %llu, %s, begun %s", v->done ? "has ended" : "is in", v->last,
            plain_text(v->what, what, sizeof what), plain_text(v->begun, begun, sizeof begun));
    add_ranks(json_member(v->at, "not_here"), missing);
    if (!v->done && !is_empty(missing)) {
        fputs("; it misses ", out);
        say_ranks(out, missing);
    }
    fputc('\n', out);
}

static void show_group(FILE *out, const struct group *g, const struct verdict *v, bool json, bool first)
{
    if (!json) {
        fprintf(out, "communicator %s: %s\n", g->view[0].name, v->text);
        for (size_t i = 0; i < g->views && v->finding != NOTHING; i++)
            show_rank(out, &g->view[i]);
        return;
    }
    fputs(first ? "{\"name\":" : ",{\"name\":", out);
    put_text(out, g->view[0].name);
    fprintf(out, ",\"finding\":\"%s\",\"operation\":%llu,", findings[v->finding], v->operation);
    put_ranks(out, "ranks", v->blamed);
    fputs(",\"sentence\":", out);
    put_text(out, v->text);
    fputc('}', out);
}

static bool report_groups(struct dumps *d, FILE *out, bool json)
{
    for (size_t i = 0, n; i < d->views; i += n) {
        struct group g = { .view = &d->view[i] };
        bool no_dump[RANKS_MOST];
        struct verdict v;
        for (n = 1; i + n < d->views && !strcmp(d->view[i + n].name, d->view[i].name); n++)
            continue;
        g.views = n;
        find_members(&g, no_dump);
        for (size_t r = 0; r < d->used; r++)
            no_dump[d->dump[r].rank] = false;
        bool judged = find_operations(&g) && judge(&g, no_dump, &v);
        if (judged) {
            show_group(out, &g, &v, json, i == 0);
            free(v.text);
        }
        free(g.operation);
        if (!judged)
            return refuse(d, d->view[i].name, "no memory");
    }
    return true;
}

static const struct dump *failed_first(const struct dumps *d)
{
    const struct dump *first = NULL;
    char least[40] = "", time[40];

    for (size_t i = 0; i < d->used; i++) {
        if (!d->dump[i].error)
            continue;
        plain_text(json_member(d->dump[i].error, "time"), time, sizeof time);
        if (first && strcmp(time, least) >= 0)
            continue;
        first = &d->dump[i];
        snprintf(least, sizeof least, "%s", time);
    }
    return first;
}

static void show_failure(FILE *out, const struct dump *d, bool json)
{
    char text[512], time[40];
    long culprit = number_of(d->error, "rank", RANKS_MOST - 1);

    plain_text(json_member(d->error, "text"), text, sizeof text);
    plain_text(json_member(d->error, "time"), time, sizeof time);
    if (json) {
        fprintf(out, ",\"failed_first\":{\"rank\":%ld,\"at_fault\":%ld,\"time\":\"", d->rank, culprit);
        fputs(time, out);
        fputs("\",\"text\":", out);
        put_text(out, text);
        fputc('}', out);
        return;
    }
    fprintf(out, "failed first: rank %ld, at %s: %s", d->rank, time, text);
    fputc('\n', out);
}

static bool is_one_job(const struct dumps *d)
{
    for (size_t i = 1; i < d->used; i++)
        if (strcmp(d->dump[i].job, d->dump[0].job) || d->dump[i].size != d->dump[0].size)
            return refuse(d, d->dump[i].file, "it is of job %s, of %ld ranks, and %s of job %s, of %ld: give the files of one job",
                          d->dump[i].job, d->dump[i].size, d->dump[0].file, d->dump[0].job, d->dump[0].size);
    return true;
}

static void show_job(FILE *out, const struct dumps *d, bool json)
{
    bool there[RANKS_MOST] = { false }, missing[RANKS_MOST];

    for (size_t i = 0; i < d->used; i++)
        there[d->dump[i].rank] = true;
    for (long r = 0; r < RANKS_MOST; r++)
        missing[r] = r < d->dump[0].size && !there[r];
    if (json) {
        fputs("{\"schema\":\"ringred-merge\",\"version\":1,\"job\":", out);
        put_text(out, d->dump[0].job);
        fprintf(out, ",\"size\":%ld,", d->dump[0].size);
        put_ranks(out, "ranks", there);
        fputc(',', out);
        put_ranks(out, "without_dump", missing);
        return;
    }
    fprintf(out, "job %s of %ld ranks: dumps of ", d->dump[0].job, d->dump[0].size);
    say_ranks(out, there);
    if (!is_empty(missing)) {
        fputs("; none of ", out);
        say_ranks(out, missing);
    }
    fputc('\n', out);
}

bool dumps_report(struct dumps *d, FILE *out, bool json)
{
    const struct dump *failed = failed_first(d);

    if (!d->used)
        return refuse(d, "--merge-dumps", "there is no dump to look at");
    if (!is_one_job(d))
        return false;
    if (!find_views(d))
        return refuse(d, "--merge-dumps", "no memory");
    show_job(out, d, json);
    if (failed)
        show_failure(out, failed, json);
    fputs(json ? ",\"communicators\":[" : "", out);
    bool all = report_groups(d, out, json);
    fputs(json ? "]}\n" : "", out);
    return all;
}
