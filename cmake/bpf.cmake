# SPDX-License-Identifier: Apache-2.0
# headgate_bpf(NAME OBJECTS...): compiles each <object>.bpf.c, links them into one object and makes
# the skeleton <name>.skel.h. Dependencies come from the compiler, so a changed header rebuilds.
find_program(CLANG_BPF NAMES clang clang-14 clang-15 clang-16 REQUIRED
  DOC "clang with the BPF target")
find_program(BPFTOOL bpftool PATHS /usr/sbin /sbin REQUIRED)
set(HEADGATE_BPF_ARCH_INCLUDE "" CACHE PATH "Directory of asm/types.h for the BPF programs")
if(NOT HEADGATE_BPF_ARCH_INCLUDE)
  # Debian keeps asm/ in a directory of the architecture that the BPF target does not search.
  execute_process(COMMAND ${CMAKE_C_COMPILER} -print-multiarch OUTPUT_VARIABLE multiarch
    OUTPUT_STRIP_TRAILING_WHITESPACE)
  set(HEADGATE_BPF_ARCH_INCLUDE /usr/include/${multiarch})
endif()

function(headgate_bpf name)
  set(dir ${CMAKE_CURRENT_BINARY_DIR})
  set(objects "")
  foreach(source ${ARGN})
    set(object ${dir}/${source}.bpf.o)
    # -mcpu=v3: 32-bit jumps and atomics; kernels without atomics load the variant without them.
    # -g: BTF of the map values, which spin locks need; CO-RE is used in lib/kernel.h.
    add_custom_command(OUTPUT ${object}
      COMMAND ${CLANG_BPF} -target bpf -mcpu=v3 -O2 -g -Wall -Wextra -Werror
        -fdebug-prefix-map=${PROJECT_SOURCE_DIR}=.
        -I${CMAKE_CURRENT_SOURCE_DIR} -I${PROJECT_SOURCE_DIR}/include
        -isystem ${HEADGATE_BPF_ARCH_INCLUDE}
        -MD -MF ${object}.d -MT ${object}
        -c ${CMAKE_CURRENT_SOURCE_DIR}/${source}.bpf.c -o ${object}
      DEPENDS ${CMAKE_CURRENT_SOURCE_DIR}/${source}.bpf.c
      DEPFILE ${object}.d
      COMMENT "BPF ${source}" VERBATIM)
    list(APPEND objects ${object})
  endforeach()
  set(linked ${dir}/${name}.linked.bpf.o)
  set(skeleton ${dir}/include/${name}.skel.h)
  add_custom_command(OUTPUT ${linked}
    COMMAND ${BPFTOOL} gen object ${linked} ${objects}
    DEPENDS ${objects} COMMENT "BPF link ${name}" VERBATIM)
  add_custom_command(OUTPUT ${skeleton}
    COMMAND ${CMAKE_COMMAND} -E make_directory ${dir}/include
    COMMAND ${BPFTOOL} gen skeleton ${linked} name ${name} > ${skeleton}
    DEPENDS ${linked} COMMENT "BPF skeleton ${name}" VERBATIM)
  add_custom_target(${name}_skeleton_file DEPENDS ${skeleton})
  add_library(${name}_skeleton INTERFACE)
  target_include_directories(${name}_skeleton SYSTEM INTERFACE ${dir}/include)
  target_link_libraries(${name}_skeleton INTERFACE PkgConfig::LIBBPF)
  add_dependencies(${name}_skeleton ${name}_skeleton_file)
  set_property(TARGET ${name}_skeleton PROPERTY HEADGATE_BPF_OBJECT ${linked})
endfunction()
