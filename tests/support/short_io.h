/* SPDX-License-Identifier: Apache-2.0 */
/* A kernel that takes and gives little at a time, for the whole of a process: a program that has short_io.c among its
 * sources calls its recv, send, recvmsg, sendmsg, read and write. On stream sockets, and reading pipes and files that have a
 * size, so many bytes go at once as was set last, and every seventh call or so is interrupted. What carries descriptors goes
 * whole, as the kernel does it. */
#ifndef SHORT_IO_H
#define SHORT_IO_H

/* 0: 1 to 16, drawn; -1, as it is at first: all. Forks have the same. */
void short_io_set(long bytes);
unsigned long short_io_count(void); /* calls of this process that were cut or interrupted */

#endif
