/* SPDX-License-Identifier: Apache-2.0 */
/* Reading tables of measured choices. A table is text, a row a line; it comes from outside, so nothing in it
 * is believed, and what is wrong with a line is told with what would be right. docs/USER.md has the form. */
#include "core/core.h"

#include <errno.h>
#include <fcntl.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#define FILE_MOST ((size_t)1 << 20)
#define ROWS_MOST 4096
#define WORDS_MOST 7
#define WORD_BYTES 48
#define TITLE "ringred-tuning"

/* A line as its words. */
struct line {
    const char *name;          /* of the file */
    int number, words;
    char word[WORDS_MOST][WORD_BYTES];
};

enum column { COLLECTIVE, TYPE, RANKS, HOSTS, BYTES, ALGORITHM, SEGMENT };

/* ---- names ---- */

static const char *const lanes[] = { [RR_LANE_TINY] = "tiny", [RR_LANE_LAST] = "last",
                                     [RR_LANE_TEAM] = "team" };

const char *rr_way_name(struct rr_way way)
{
    return way.lane != RR_LANE_NONE ? lanes[way.lane] : rr_algo_table[way.algo].name;
}

enum rr_collective rr_way_collective(struct rr_way way)
{
    return way.lane != RR_LANE_NONE ? RR_ALLREDUCE : rr_algo_table[way.algo].what;
}

bool rr_way_find(const char *name, struct rr_way *way)
{
    for (int lane = RR_LANE_TINY; lane <= RR_LANE_LAST; lane++)
        if (strcmp(name, lanes[lane]) == 0) {
            *way = (struct rr_way){ (enum rr_lane)lane, RR_ALGO_COPY };
            return true;
        }
    for (int algo = 0; algo < RR_ALGOS; algo++)
        if (strcmp(name, rr_algo_table[algo].name) == 0) {
            *way = (struct rr_way){ RR_LANE_NONE, (enum rr_algo)algo };
            return true;
        }
    return false;
}

static int collective_of(const char *name)
{
    for (int what = 1; what < RR_COLLECTIVES; what++)
        if (strcmp(name, rr_collective_name((enum rr_collective)what)) == 0)
            return what;
    return -1;
}

/* ---- words ---- */

static int wrong(const struct line *l, const char *is, const char *right, ringred_error *why)
{
    return rr_fail(why, RINGRED_ESETTING, -1, 0, "%.200s, line %d: \"%.40s\" is not %.160s", l->name, l->number, is,
                   right);
}

/* Cuts a line at blanks and at '#'. */
static int cut(const char *at, const char *end, struct line *l, ringred_error *why)
{
    l->words = 0;
    while (at < end && *at != '#') {
        const char *from = at;
        while (at < end && *at != ' ' && *at != '\t' && *at != '\r' && *at != '#')
            at++;
        size_t bytes = (size_t)(at - from);
        if (bytes && (l->words == WORDS_MOST || bytes >= WORD_BYTES || memchr(from, 0, bytes)))
            return rr_fail(why, RINGRED_ESETTING, -1, 0, "%.200s, line %d: a row is at most %d words of fewer than "
                           "%d letters", l->name, l->number, WORDS_MOST, WORD_BYTES);
        if (bytes) {
            memcpy(l->word[l->words], from, bytes);
            l->word[l->words++][bytes] = 0;
        }
        at += at < end && *at != '#';
    }
    return 0;
}

/* Digits, and K, M or G where that is allowed; the rest of the text. */
static const char *read_number(const char *at, bool bytes, uint64_t *number)
{
    const char *from = at;
    int shift = 0;

    for (*number = 0; *at >= '0' && *at <= '9'; at++) {
        if (*number > UINT64_MAX / 100)
            return NULL;
        *number = *number * 10 + (uint64_t)(*at - '0');
    }
    if (at == from)
        return NULL;
    if (bytes && *at && strchr("KMG", *at))
        shift = *at == 'K' ? 10 : *at == 'M' ? 20 : 30;
    if (*number > (uint64_t)INT64_MAX >> shift)
        return NULL;
    *number <<= shift;
    return at + (shift != 0);
}

/* "*", "7", "7..", "..9" or "7..9". */
static bool read_range(const char *text, bool bytes, struct rr_tuning_range *range)
{
    *range = (struct rr_tuning_range){ 0, INT64_MAX };
    if (strcmp(text, "*") == 0)
        return true;
    if (*text != '.') {
        text = read_number(text, bytes, &range->least);
        if (text && !*text)
            range->most = range->least;
    }
    if (!text || !*text)
        return text != NULL;
    if (strncmp(text, "..", 2) != 0)
        return false;
    text += 2;
    if (*text)
        text = read_number(text, bytes, &range->most);
    return text && !*text && range->least <= range->most;
}

/* ---- a row ---- */

static int read_type(const struct line *l, struct rr_tuning_row *row, ringred_error *why)
{
    const char *word = l->word[TYPE];

    if (strcmp(word, "*") == 0)
        return 0;
    if (row->what == RR_BARRIER)
        return wrong(l, word, "*, which is all that a barrier's type can be", why);
    if (word[0] >= '0' && word[0] <= '9') {
        uint64_t width;
        const char *end = read_number(word, false, &width);
        if (!end || strcmp(end, "B") != 0 || !(width == 1 || width == 2 || width == 4 || width == 8 || width == 16))
            return wrong(l, word, "the width of a type: 1B, 2B, 4B, 8B or 16B", why);
        row->width = (int)width;
        return 0;
    }
    row->type = rr_type_of_name(word);
    return row->type > 0 ? 0 : wrong(l, word, "a type: *, a name such as float32, or a width such as 4B", why);
}

/* The name of this collective's that is nearest to a word. */
static const char *nearest_way(const char *word, enum rr_collective what)
{
    const char *nearest = what == RR_ALLREDUCE ? lanes[RR_LANE_TINY] : NULL;

    for (int algo = 0; algo < RR_ALGOS; algo++) {
        const char *name = rr_algo_table[algo].name;
        if (rr_algo_table[algo].what == what && algo != RR_ALGO_COPY &&
            (!nearest || rr_word_distance(word, name) < rr_word_distance(word, nearest)))
            nearest = name;
    }
    return nearest ? nearest : "?";
}

static int read_way(const struct line *l, struct rr_tuning_row *row, ringred_error *why)
{
    const char *word = l->word[ALGORITHM];
    bool known = rr_way_find(word, &row->way);

    if (known && rr_way_collective(row->way) == row->what)
        return 0;
    return rr_fail(why, RINGRED_ESETTING, -1, 0, "%.200s, line %d: \"%.40s\" is no algorithm of %s; the nearest is \"%s\" "
                   "(ringred-info --algorithms)", l->name, l->number, word, l->word[COLLECTIVE],
                   nearest_way(word, row->what));
}

static int read_segment(const struct line *l, struct rr_tuning_row *row, ringred_error *why)
{
    const char *word = l->word[SEGMENT], *end;

    if (l->words <= SEGMENT || strcmp(word, "-") == 0)
        return 0;
    if (row->what == RR_BARRIER || row->way.lane != RR_LANE_NONE)
        return wrong(l, word, "- or nothing: this algorithm has no segments", why);
    end = read_number(word, true, &row->segment);
    if (!end || *end || row->segment < 1024 || row->segment > (64 << 20))
        return wrong(l, word, "a segment: -, or bytes from 1K to 64M", why);
    return 0;
}

static int read_row(const struct line *l, struct rr_tuning_row *row, ringred_error *why)
{
    int what = collective_of(l->word[COLLECTIVE]);

    if (what < 0)
        return wrong(l, l->word[COLLECTIVE], "a collective: allreduce, reduce, reduce_scatter, broadcast, allgather, "
                     "gather, scatter, alltoall or barrier", why);
    if (l->words <= ALGORITHM)
        return rr_fail(why, RINGRED_ESETTING, -1, 0, "%.200s, line %d has %d words: a row is \"collective type ranks "
                       "hosts bytes algorithm\", and a segment or not", l->name, l->number, l->words);
    *row = (struct rr_tuning_row){ .what = (enum rr_collective)what, .line = l->number };
    RR_TRY(read_type(l, row, why));
    if (!read_range(l->word[RANKS], false, &row->ranks))
        return wrong(l, l->word[RANKS], "a number of ranks: *, 4, 2..8 or 9..", why);
    if (!read_range(l->word[HOSTS], false, &row->hosts))
        return wrong(l, l->word[HOSTS], "a number of hosts: *, 1, 2..8 or 9..", why);
    if (!read_range(l->word[BYTES], true, &row->bytes))
        return wrong(l, l->word[BYTES], "a range of bytes: *, ..2K, 2049..1M or 1M..", why);
    RR_TRY(read_way(l, row, why));
    return read_segment(l, row, why);
}

/* ---- a table ---- */

static uint64_t mix(uint64_t h, uint64_t with)
{
    h = (h ^ with) * 0xff51afd7ed558ccdu;
    return h ^ h >> 32;
}

/* Of what the rows say, by names, so that remarks and blanks do not count. */
static uint64_t hash_of(const struct rr_tuning *t)
{
    uint64_t h = 0x9e3779b97f4a7c15u;

    for (int i = 0; i < t->rows; i++) {
        const struct rr_tuning_row *r = &t->row[i];
        const uint64_t fields[] = { r->what, r->type, r->width, r->ranks.least, r->ranks.most, r->hosts.least,
                                    r->hosts.most, r->bytes.least, r->bytes.most, r->segment };
        for (size_t k = 0; k < sizeof fields / sizeof *fields; k++)
            h = mix(h, fields[k]);
        for (const char *c = rr_way_name(r->way); *c; c++)
            h = mix(h, (unsigned char)*c);
    }
    return h ? h : 1;
}

static int add_line(const struct line *l, bool *titled, struct rr_tuning *t, ringred_error *why)
{
    if (!l->words)
        return 0;
    if (!*titled) {
        *titled = l->words == 2 && strcmp(l->word[0], TITLE) == 0 && strcmp(l->word[1], "1") == 0;
        return *titled ? 0 : wrong(l, l->word[0], "the first line of a table: \"" TITLE " 1\"", why);
    }
    if (t->rows == ROWS_MOST)
        return rr_fail(why, RINGRED_ESETTING, -1, 0, "%.200s, line %d: a table has at most %d rows", l->name, l->number,
                       ROWS_MOST);
    RR_TRY(read_row(l, &t->row[t->rows], why));
    t->rows++;
    return 0;
}

static int read_lines(const char *at, const char *end, const char *name, struct rr_tuning *t, ringred_error *why)
{
    struct line l = { .name = name };
    bool titled = false;

    while (at < end) {
        const char *stop = memchr(at, '\n', (size_t)(end - at));
        stop = stop ? stop : end;
        l.number++;
        RR_TRY(cut(at, stop, &l, why));
        RR_TRY(add_line(&l, &titled, t, why));
        at = stop + (stop < end);
    }
    if (!titled)
        return rr_fail(why, RINGRED_ESETTING, -1, 0, "%.200s is no table: it begins with the line \"" TITLE " 1\"", name);
    return 0;
}

int rr_tuning_parse(const char *text, size_t bytes, const char *name, struct rr_tuning **tuning, ringred_error *why)
{
    struct rr_tuning *t = rr_alloc(1, sizeof *t);
    size_t lines = 1;

    for (size_t i = 0; i < bytes; i++)
        lines += text[i] == '\n';
    lines = lines < ROWS_MOST ? lines : ROWS_MOST;
    if (t)
        t->row = rr_alloc(lines, sizeof *t->row);
    int rc = t && t->row ? read_lines(text, text + bytes, name, t, why)
                         : rr_fail(why, RINGRED_ENOMEM, -1, 0, "no memory for a table of %zu lines", lines);
    if (rc < 0) {
        rr_tuning_free(t);
        return rc;
    }
    t->hash = hash_of(t);
    *tuning = t;
    return 0;
}

/* All of a file that is not too long, in text[FILE_MOST]; its bytes. */
static int64_t read_file(const char *path, char *text, ringred_error *why)
{
    struct stat is;
    size_t used = 0;
    ssize_t got = 1;
    int fd = open(path, O_RDONLY | O_CLOEXEC | O_NONBLOCK);

    if (fd < 0)
        return rr_fail(why, RINGRED_ESETTING, -1, errno, "tuning: cannot read %.200s", path);
    bool fits = fstat(fd, &is) == 0 && S_ISREG(is.st_mode) && (size_t)is.st_size < FILE_MOST;
    while (fits && got > 0 && used < FILE_MOST) {
        got = read(fd, text + used, FILE_MOST - used);
        used += got > 0 ? (size_t)got : 0;
    }
    int system = got < 0 ? errno : 0;
    close(fd);
    if (!fits || got)
        return rr_fail(why, RINGRED_ESETTING, -1, system, "tuning: %.200s is not a file of less than 1 MiB", path);
    return (int64_t)used;
}

int rr_tuning_load(const char *path, struct rr_tuning **tuning, ringred_error *why)
{
    *tuning = NULL;
    if (!*path)
        return 0;
    char *text = rr_alloc(1, FILE_MOST);
    if (!text)
        return rr_fail(why, RINGRED_ENOMEM, -1, 0, "no memory to read a table");
    int64_t bytes = read_file(path, text, why);
    int rc = bytes < 0 ? (int)bytes : rr_tuning_parse(text, (size_t)bytes, path, tuning, why);
    rr_free(text);
    return rc;
}

struct rr_tuning *rr_tuning_hold(struct rr_tuning *t)
{
    if (t)
        atomic_fetch_add(&t->held, 1);
    return t;
}

void rr_tuning_free(struct rr_tuning *t)
{
    if (!t || atomic_fetch_sub(&t->held, 1) > 0)
        return;
    rr_free(t->row);
    rr_free(t);
}

bool rr_tuning_fits(const struct rr_tuning_row *row, int ranks, int hosts)
{
    return (uint64_t)ranks >= row->ranks.least && (uint64_t)ranks <= row->ranks.most &&
           (uint64_t)hosts >= row->hosts.least && (uint64_t)hosts <= row->hosts.most;
}
