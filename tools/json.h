/* SPDX-License-Identifier: Apache-2.0 */
/* Just enough JSON to show what the library says about itself. A value is a pointer to its first
 * character in a text that ends with '\0'; NULL stands for a value that is not there. */
#ifndef TOOLS_JSON_H
#define TOOLS_JSON_H

#include <stddef.h>
#include <stdio.h>

const char *json_skip_space(const char *at);
/* Past the object that a text begins with; NULL: it is none, ends in the middle, is too deep, or has control characters
 * outside of strings. What the others do with such a text is defined, but says nothing. */
const char *json_whole(const char *text);
/* The value of a key of an object; NULL if it has none. */
const char *json_member(const char *object, const char *key);
/* The first element of an array, or the one after an element; NULL at the end. */
const char *json_first(const char *array);
const char *json_after(const char *element);
/* A string without its quotes and escapes, or any other value as it stands; cut to the room. */
const char *json_text(const char *value, char *room, size_t bytes);
/* Just past a value. */
const char *json_end(const char *value);
/* Indented lines "key: value"; lists of plain values on one line. */
void json_print(FILE *out, const char *value, int indent);
/* The same for an object, less some of its members; the list of keys ends with NULL. */
void json_print_without(FILE *out, const char *object, const char *const *keys);

#endif
