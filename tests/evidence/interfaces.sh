#!/bin/bash
# SPDX-License-Identifier: Apache-2.0
# Promise: ranks find the right interface without being told: host names that mean loopback, the same bridge on every
# host, networks that work in one direction or not at all, IPv6 alone, link-local addresses alone, networks of
# different MTU; and where they are told (interface, port_range) every socket obeys. Each with two and with three hosts,
# which are network namespaces (root).   interfaces.sh BUILD
. "$(dirname "$0")/common.sh"
exec "$top/tests/net/interfaces.sh" "$build" all
