/* SPDX-License-Identifier: Apache-2.0 */
/* What the dumps of a job's ranks say together (ringred_comm_dump, the setting dump_dir): who asked for something else,
 * who never came, who failed first, and whose dump is not there. They may be any bytes. */
#ifndef TOOLS_DUMPS_H
#define TOOLS_DUMPS_H

#include <stdbool.h>
#include <stddef.h>
#include <stdio.h>

struct dumps;

struct dumps *dumps_new(FILE *complaints); /* NULL: no memory. What is not used is said there, a line each */
void dumps_free(struct dumps *d);
/* Takes a text of `bytes` bytes (a copy): one dump, or several one behind the other. false: it is of no use. */
bool dumps_add(struct dumps *d, const char *file, const char *text, size_t bytes);
bool dumps_add_path(struct dumps *d, const char *path); /* a file, or a folder's files *.json */
/* What they say. false, and why: there are none, or they are of several jobs. */
bool dumps_report(struct dumps *d, FILE *out, bool json);

#endif
