# SPDX-License-Identifier: Apache-2.0
# Requests of HTTP/2 on real connections. The gRPC peer is built by Debian 12's Go with Debian 12's
# grpc-go, from package files alone; where they are missing, the tests that need it are skipped.
find_program(HEADGATE_GO NAMES go PATHS /usr/lib/go-1.19/bin NO_DEFAULT_PATH)
set(grpc_peer "")
if(HEADGATE_GO AND EXISTS /usr/share/gocode/src/google.golang.org/grpc)
  set(grpc_peer ${PROJECT_BINARY_DIR}/tests/grpc_peer)
  set(source ${PROJECT_SOURCE_DIR}/tests/support/grpc_peer/main.go)
  add_custom_command(OUTPUT ${grpc_peer}
    COMMAND ${CMAKE_COMMAND} -E env GO111MODULE=off GOFLAGS= GOPATH=/usr/share/gocode
      GOCACHE=${PROJECT_BINARY_DIR}/go-cache ${HEADGATE_GO} build -o ${grpc_peer} ${source}
    DEPENDS ${source} COMMENT "Go grpc_peer" VERBATIM)
  add_custom_target(headgate_grpc_peer DEPENDS ${grpc_peer})
endif()
headgate_test(grpc_test netns
  SOURCES grpc_test.cc
  LIBS headgate_hooks headgate_net_lab PkgConfig::LIBBPF)
target_include_directories(grpc_test PRIVATE ${PROJECT_SOURCE_DIR}/bpf)
target_compile_definitions(grpc_test PRIVATE HEADGATE_GRPC_PEER="${grpc_peer}")
if(grpc_peer)
  add_dependencies(grpc_test headgate_grpc_peer)
endif()
