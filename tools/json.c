/* SPDX-License-Identifier: Apache-2.0 */
/* The JSON reader and printer of ringred-info. */
#include "json.h"

#include <string.h>

#define DEPTH_MOST 32

const char *json_skip_space(const char *at)
{
    return at + strspn(at, " \t\r\n");
}

static const char *skip_string(const char *at)
{
    for (at++; *at && *at != '"'; at++)
        if (*at == '\\' && at[1])
            at++;
    return *at ? at + 1 : at;
}

/* Past a value, whatever is in it. */
static const char *skip_value(const char *at)
{
    int depth = 0;

    at = json_skip_space(at);
    do {
        if (*at == '"') {
            at = skip_string(at);
        } else if (*at == '{' || *at == '[') {
            depth++;
            at++;
        } else if (*at == '}' || *at == ']') {
            depth--;
            at++;
        } else if (depth > 0 && *at) {
            at++;
        } else {
            at += strcspn(at, ",]} \t\r\n");
        }
    } while (*at && depth > 0);
    return at;
}

/* Between values there is white space alone: what the text says may be shown on a terminal. */
static int is_control(const char *at)
{
    return ((unsigned char)*at < ' ' && !strchr("\t\r\n", *at)) || *at == 0x7f;
}

const char *json_whole(const char *at)
{
    char closing[DEPTH_MOST];
    int depth = 0;

    do {
        if (*at == '{' || *at == '[') {
            if (depth == DEPTH_MOST)
                return NULL;
            closing[depth++] = *at == '{' ? '}' : ']';
        } else if (!depth || ((*at == '}' || *at == ']') && *at != closing[--depth])) {
            return NULL;
        }
        const char *next = *at == '"' ? skip_string(at) : at + 1;
        if (is_control(at) || !*at || (*at == '"' && next[-1] != '"'))
            return NULL;
        at = next;
    } while (depth);
    return at;
}

const char *json_end(const char *value)
{
    return skip_value(value);
}

const char *json_first(const char *array)
{
    const char *at = array && (*array == '[' || *array == '{') ? json_skip_space(array + 1) : NULL;

    return at && *at && *at != ']' && *at != '}' ? at : NULL;
}

const char *json_after(const char *element)
{
    const char *at = json_skip_space(skip_value(element));

    return *at == ',' ? json_skip_space(at + 1) : NULL;
}

/* In an object elements are keys; the value of one. */
static const char *value_of(const char *key)
{
    const char *at = json_skip_space(skip_value(key));

    return *at == ':' ? json_skip_space(at + 1) : NULL;
}

const char *json_member(const char *object, const char *key)
{
    char name[64];

    for (const char *at = json_first(object); at && *at == '"';) {
        const char *value = value_of(at);

        if (!value)
            return NULL;
        if (!strcmp(json_text(at, name, sizeof name), key))
            return value;
        at = json_after(value);
    }
    return NULL;
}

const char *json_text(const char *value, char *room, size_t bytes)
{
    const char *end = value ? skip_value(value) : NULL;
    size_t used = 0;

    if (value && *value == '"') {
        value++;
        end = end > value ? end - 1 : end;
    }
    for (; value && value < end && used + 1 < bytes; value++) {
        if (*value == '\\' && value + 1 < end)
            value++;
        room[used++] = *value;
    }
    room[used] = '\0';
    return room;
}

static int is_plain(const char *value)
{
    return *value != '{' && *value != '[';
}

static void print_scalar(FILE *out, const char *value)
{
    char room[1024];

    fputs(json_text(value, room, sizeof room), out);
}

static void print_list(FILE *out, const char *list)
{
    for (const char *at = json_first(list); at; at = json_after(at)) {
        print_scalar(out, at);
        fputs(json_after(at) ? ", " : "", out);
    }
    fputs("\n", out);
}

static int has_only_scalars(const char *list)
{
    for (const char *at = json_first(list); at; at = json_after(at))
        if (!is_plain(at))
            return 0;
    return 1;
}

static void print_object(FILE *out, const char *object, const char *const *without, int indent);

/* Each element begins with a dash, on the line of its first member. */
static void print_array(FILE *out, const char *array, int indent)
{
    for (const char *at = json_first(array); at; at = json_after(at)) {
        fprintf(out, "%*s- ", indent, "");
        if (*at == '{')
            print_object(out, at, NULL, -(indent + 2));
        else
            json_print(out, at, 0);
    }
}

static void print_member(FILE *out, const char *key, const char *value, int now, int indent)
{
    char name[64];

    fprintf(out, "%*s%s:", now, "", json_text(key, name, sizeof name));
    if (is_plain(value)) {
        fputs(" ", out);
        print_scalar(out, value);
        fputs("\n", out);
    } else if (*value == '[' && has_only_scalars(value)) {
        fputs(" ", out);
        print_list(out, value);
    } else {
        fputs("\n", out);
        json_print(out, value, indent + 2);
    }
}

/* Is the key in a list that ends with NULL, or is NULL? */
static int is_one_of(const char *key, const char *const *list)
{
    char name[64];

    json_text(key, name, sizeof name);
    for (; list && *list; list++)
        if (!strcmp(name, *list))
            return 1;
    return 0;
}

/* indent below 0: the first line has been indented already */
static void print_object(FILE *out, const char *object, const char *const *without, int indent)
{
    int now = indent < 0 ? 0 : indent, then = indent < 0 ? -indent : indent;

    for (const char *key = json_first(object); key;) {
        const char *inner = value_of(key);

        if (!inner)
            return;
        if (!is_one_of(key, without))
            print_member(out, key, inner, now, then);
        now = then;
        key = json_after(inner);
    }
}

void json_print(FILE *out, const char *value, int indent)
{
    if (!value || indent > 2 * DEPTH_MOST)
        return;
    value = json_skip_space(value);
    if (*value == '[') {
        print_array(out, value, indent);
    } else if (*value == '{') {
        print_object(out, value, NULL, indent);
    } else {
        fprintf(out, "%*s", indent, "");
        print_scalar(out, value);
        fputs("\n", out);
    }
}

void json_print_without(FILE *out, const char *object, const char *const *keys)
{
    print_object(out, json_skip_space(object), keys, 0);
}
