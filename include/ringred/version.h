/* SPDX-License-Identifier: Apache-2.0 */
/* The three numbers of the library: what was released, what a program is linked against, and what
 * a transport plug-in is built against. The wire's number stands in docs/WIRE.md. */
#ifndef RINGRED_VERSION_H
#define RINGRED_VERSION_H

#define RINGRED_VERSION_MAJOR 0
#define RINGRED_VERSION_MINOR 1
#define RINGRED_VERSION_PATCH 0
#define RINGRED_VERSION "0.1.0"

#define RINGRED_ABI_VERSION 0        /* the number in the shared library's name */
#define RINGRED_PLUGIN_ABI_VERSION 1 /* in the name of the function that a transport plug-in exports */

#endif
