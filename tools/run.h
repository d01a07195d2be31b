/* SPDX-License-Identifier: Apache-2.0 */
/* The door between the files of ringred-run: lists of hosts, and the job as one ringred-run tells it to another. */
#ifndef TOOLS_RUN_H
#define TOOLS_RUN_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#define KEY_BYTES   32
#define RANKS_MOST  4096
#define HOSTS_MOST  1024
#define EXTRAS_MOST 256
#define EXIT_SYSTEM 125 /* ringred-run itself failed */

/* ringred-run.c */
void say(const char *format, ...) __attribute__((format(printf, 1, 2)));
void must(bool fine, const char *what);
long number(const char *text, const char *what, long least, long most);

struct run_host {
    char name[256];
    int slots;        /* as it was asked for */
    int first, ranks; /* that run there */
};

/* Adds those of "a:2,b,[fd00::1]:4", or of a file with a line for each; says what is wrong, and exits. */
int run_hosts_list(struct run_host *hosts, const char *text);
int run_hosts_file(struct run_host *hosts, const char *path);
/* Gives `ranks` ranks (0: as many as there is room for) to the hosts in order. Returns how many there are. */
int run_hosts_fill(struct run_host *hosts, int *count, int ranks);

/* What one host needs to know of the job. It travels over standard input, never among arguments: it has the key. */
struct run_part {
    char host[256];
    int first, ranks, size;
    int64_t grace_ns;
    unsigned char key[KEY_BYTES];
    char root[256]; /* empty: open it, and tell */
    char directory[4096];
    const char *extra[EXTRAS_MOST]; /* NAME=VALUE */
    int extras;
    char **command; /* ended by NULL */
};

/* Both leave out or wait for the root, which has its own note: it is known when the first host has opened it. */
void run_part_send(int fd, const struct run_part *part);
void run_root_send(int fd, const char *root);
void run_part_read(int fd, struct run_part *part); /* with the root; says what is wrong, and exits */

/* A socket for ranks of any host, and all addresses where it can be reached as a root list. */
int run_open_root(char *root, size_t room);

#endif
