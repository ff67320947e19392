# SPDX-License-Identifier: Apache-2.0
# grpc_peer is built by Debian 12's Go with Debian 12's grpc-go, from package files alone; where they
# are missing, the tests that need it are skipped.
find_program(HEADGATE_GO NAMES go PATHS /usr/lib/go-1.19/bin NO_DEFAULT_PATH)
set(peer "")
if(HEADGATE_GO AND EXISTS /usr/share/gocode/src/google.golang.org/grpc)
  set(peer ${PROJECT_BINARY_DIR}/tests/grpc_peer)
  set(source ${PROJECT_SOURCE_DIR}/tests/support/grpc_peer/main.go)
  add_custom_command(OUTPUT ${peer}
    COMMAND ${CMAKE_COMMAND} -E env GO111MODULE=off GOFLAGS= GOPATH=/usr/share/gocode
      GOCACHE=${PROJECT_BINARY_DIR}/go-cache ${HEADGATE_GO} build -o ${peer} ${source}
    DEPENDS ${source} COMMENT "Go grpc_peer" VERBATIM)
  add_custom_target(headgate_grpc_peer DEPENDS ${peer})
endif()
set_property(GLOBAL PROPERTY HEADGATE_GRPC_PEER "${peer}")

# headgate_needs_grpc_peer(TEST): its path is HEADGATE_GRPC_PEER, empty where it cannot be built.
function(headgate_needs_grpc_peer test)
  get_property(peer GLOBAL PROPERTY HEADGATE_GRPC_PEER)
  target_compile_definitions(${test} PRIVATE HEADGATE_GRPC_PEER="${peer}")
  if(peer)
    add_dependencies(${test} headgate_grpc_peer)
  endif()
endfunction()
