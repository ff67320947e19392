# SPDX-License-Identifier: Apache-2.0
# Toolchain file: builds for arm64 on another Debian machine, with the packages of the set build-arm64
# (tests/packages.txt). The BPF objects are the same for both.
set(CMAKE_SYSTEM_NAME Linux)
set(CMAKE_SYSTEM_PROCESSOR aarch64)
set(CMAKE_C_COMPILER aarch64-linux-gnu-gcc)
set(CMAKE_CXX_COMPILER aarch64-linux-gnu-g++)
set(ENV{PKG_CONFIG_LIBDIR} /usr/lib/aarch64-linux-gnu/pkgconfig:/usr/share/pkgconfig)
