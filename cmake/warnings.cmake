# SPDX-License-Identifier: Apache-2.0
# How every target of ours is compiled: link headgate_options.
option(HEADGATE_WERROR "Treat warnings as errors (on in the presets)" OFF)
option(HEADGATE_HARDENING "Compile and link with the usual hardening flags" OFF)
set(HEADGATE_SANITIZE "" CACHE STRING "Sanitizers, as for -fsanitize=: address,undefined or thread")

add_library(headgate_options INTERFACE)
target_include_directories(headgate_options INTERFACE
  ${PROJECT_SOURCE_DIR} ${PROJECT_SOURCE_DIR}/include)
target_compile_options(headgate_options INTERFACE -Wall -Wextra -Wconversion -Wshadow)
if(HEADGATE_WERROR)
  target_compile_options(headgate_options INTERFACE -Werror)
endif()

# Multiplications and additions are not fused, so that the same inputs give the same decisions on both
# processors (x86-64 has no fused ones in its base).
if(CMAKE_SYSTEM_PROCESSOR STREQUAL "aarch64")
  target_compile_options(headgate_options INTERFACE -ffp-contract=off)
endif()

# -O2 in place of CMake's -O3: the agent is measured by its size and its share of one core.
set(CMAKE_CXX_FLAGS_RELEASE "-O2 -g1 -DNDEBUG")
set(CMAKE_C_FLAGS_RELEASE "-O2 -g1 -DNDEBUG")

include(CheckPIESupported)
check_pie_supported(LANGUAGES C CXX)

if(HEADGATE_HARDENING)
  # The same, by the names of the two processors.
  set(branch_protection -fcf-protection)
  if(CMAKE_SYSTEM_PROCESSOR STREQUAL "aarch64")
    set(branch_protection -mbranch-protection=standard)
  endif()
  # _FORTIFY_SOURCE=3 needs gcc 12 and glibc 2.34. Undefined first: some builders preset it.
  target_compile_options(headgate_options INTERFACE
    -U_FORTIFY_SOURCE -D_FORTIFY_SOURCE=3 -D_GLIBCXX_ASSERTIONS
    -fstack-protector-strong -fstack-clash-protection ${branch_protection} -Wformat -Werror=format-security)
  target_link_options(headgate_options INTERFACE -Wl,-z,relro,-z,now,-z,noexecstack)
endif()

if(HEADGATE_SANITIZE)
  # For everything in the tree, BPF objects aside (they are not built by these compilers).
  # Names and lines are enough for a report; all that -g writes would take a quarter of the time.
  add_compile_options(-fsanitize=${HEADGATE_SANITIZE} -fno-sanitize-recover=all
    -fno-omit-frame-pointer -O1 -g1)
  # With -fsanitize=address gcc 12 sees std::regex's own members as uninitialised (gcc PR 105562).
  add_compile_options($<$<CXX_COMPILER_ID:GNU>:-Wno-maybe-uninitialized>)
  add_link_options(-fsanitize=${HEADGATE_SANITIZE})
endif()
