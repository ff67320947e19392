# SPDX-License-Identifier: Apache-2.0
option(HEADGATE_WERROR "Treat warnings as errors (on in the presets)" OFF)
add_library(headgate_options INTERFACE)
target_include_directories(headgate_options INTERFACE
  ${PROJECT_SOURCE_DIR} ${PROJECT_SOURCE_DIR}/include)
target_compile_options(headgate_options INTERFACE -Wall -Wextra -Wconversion -Wshadow)
if(HEADGATE_WERROR)
  target_compile_options(headgate_options INTERFACE -Werror)
endif()
