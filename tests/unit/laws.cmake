# SPDX-License-Identifier: Apache-2.0
# Signals, strategies, decisions: pure, so no root and no files.
headgate_test(signals_test unit
  SOURCES signals_derive_test.cc
  LIBS headgate_signals headgate_base)
headgate_test(decision_test unit
  SOURCES decision_allocate_test.cc decision_requests_test.cc decision_policy_test.cc decision_blast_radius_test.cc
  LIBS headgate_decision headgate_base)
headgate_test(strategies_test unit
  SOURCES strategies_registry_test.cc strategies_simple_test.cc strategies_graded_test.cc
          strategies_memory_test.cc strategies_closed_loop_test.cc strategies_record_test.cc
          strategies_rolling_test.cc strategies_token_bucket_test.cc strategies_concurrency_test.cc
          strategies_aimd_test.cc strategies_bbr_test.cc strategies_gradient_test.cc
          strategies_codel_test.cc strategies_sre_test.cc strategies_scaled_test.cc
          strategies_klimiter_test.cc strategies_sentinel_test.cc strategies_four_layer_test.cc
          strategies_hybrid_test.cc
  LIBS headgate_strategies headgate_signals headgate_base)
target_compile_definitions(strategies_test PRIVATE
  HEADGATE_TEST_DATA="${PROJECT_SOURCE_DIR}/tests/data")
headgate_test(strategies_published_test unit
  SOURCES strategies_published_test.cc
  LIBS headgate_sim headgate_strategies headgate_base)
# Replaces operator new, so it is a binary of its own, and not for sanitizers, which do that too.
if(NOT HEADGATE_SANITIZE)
  headgate_test(strategies_allocation_test unit
    SOURCES strategies_allocation_test.cc
    LIBS headgate_strategies headgate_signals headgate_base)
  # Where gcc inlines only one half of the pair, it takes the replacement for a mismatch.
  target_compile_options(strategies_allocation_test PRIVATE -Wno-mismatched-new-delete)
endif()
