# SPDX-License-Identifier: Apache-2.0
# CPU of refused and of admitted requests of HTTP/1.1, in front of Go's net/http and of nginx. Needs
# root; fails above the bars.
set(server "")
if(HEADGATE_GO)
  set(server ${PROJECT_BINARY_DIR}/tests/requests_server)
  set(source ${CMAKE_CURRENT_LIST_DIR}/requests_server/main.go)
  add_custom_command(OUTPUT ${server}
    COMMAND ${CMAKE_COMMAND} -E env GO111MODULE=off GOFLAGS=
      GOCACHE=${PROJECT_BINARY_DIR}/go-cache ${HEADGATE_GO} build -o ${server} ${source}
    DEPENDS ${source} COMMENT "Go requests_server" VERBATIM)
  add_custom_target(headgate_requests_server DEPENDS ${server})
endif()
add_executable(requests_bench ${CMAKE_CURRENT_LIST_DIR}/requests_bench.cc)
target_link_libraries(requests_bench PRIVATE
  headgate_options headgate_hooks headgate_net_lab PkgConfig::LIBBPF GTest::gtest Threads::Threads)
target_compile_definitions(requests_bench PRIVATE HEADGATE_REQUESTS_SERVER="${server}")
set_target_properties(requests_bench PROPERTIES RUNTIME_OUTPUT_DIRECTORY ${PROJECT_BINARY_DIR}/tests)
if(server)
  add_dependencies(requests_bench headgate_requests_server)
endif()
