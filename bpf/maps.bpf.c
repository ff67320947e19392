// SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
/* Defines the maps that all other objects declare extern. */
#define HEADGATE_DEFINE_MAPS
#include "lib/early.h"

char LICENSE[] SEC("license") = "Dual BSD/GPL";
