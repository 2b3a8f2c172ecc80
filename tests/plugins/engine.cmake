# SPDX-License-Identifier: BSD-3-Clause
# What the plug-ins over engines have in common. Each is built against an installed symmem and one engine:
# the plug-in, a program that checks it, and what the engine does outside of symmem, for FINDINGS.md.
find_package(symmem REQUIRED)

set(CMAKE_C_STANDARD 11)
set(CMAKE_C_STANDARD_REQUIRED ON)
set(CMAKE_C_EXTENSIONS ON) # Linux interfaces
set(CMAKE_C_VISIBILITY_PRESET hidden) # one symbol is exported: symmem_backend_entry
if(NOT CMAKE_BUILD_TYPE)
  set(CMAKE_BUILD_TYPE RelWithDebInfo)
endif()

# FILTER: the cases of the suite that are run; all take a quarter of an hour and more.
set(FILTER "signal.*,onesided.*,barrier.group*,context.*" CACHE STRING "Cases of the suite")

# NAME is the backend's; LIBRARIES what it needs beside the kit, its engine among it.
function(add_plugin name)
  cmake_parse_arguments(plugin "" "" "SOURCES;LIBRARIES" ${ARGN})
  add_library(symmem_backend_${name} MODULE ${plugin_SOURCES})
  target_link_libraries(symmem_backend_${name} PRIVATE symmem::kit ${plugin_LIBRARIES})
  target_compile_options(symmem_backend_${name} PRIVATE -Wall -Wextra -Wshadow)
  # The file name is what the library looks for when a program asks for the backend by its name.
  install(TARGETS symmem_backend_${name} LIBRARY DESTINATION ${symmem_BACKEND_DIR})
endfunction()

function(add_check)
  add_executable(check ${CMAKE_CURRENT_FUNCTION_LIST_DIR}/check.c)
  target_link_libraries(check PRIVATE symmem::symmem)
  target_compile_options(check PRIVATE -Wall -Wextra -Wshadow)
endfunction()

# Ranks that the suite starts itself, by the kit's process manager. One case at a time: a rank that waits in
# its engine takes a processor. ARGN: more cases.
function(add_own_start name)
  string(JOIN "," cases ${FILTER} ${ARGN})
  foreach(ranks 2 4)
    add_test(NAME own.${ranks} COMMAND symmem::symmem-conformance --backend
      $<TARGET_FILE:symmem_backend_${name}> --ranks ${ranks} --jobs 1 --filter ${cases} --no-large)
    set_tests_properties(own.${ranks} PROPERTIES TIMEOUT 600)
  endforeach()
endfunction()

# For an engine that starts by PMIx, where PMIx's headers are.
function(add_pmix_server name)
  find_path(PMIX_INCLUDE_DIR pmix_server.h PATH_SUFFIXES pmix2/include pmix
    HINTS /usr/lib/${CMAKE_LIBRARY_ARCHITECTURE}/pmix2/include)
  find_library(PMIX_LIBRARY NAMES pmix libpmix.so.2 HINTS /usr/lib/${CMAKE_LIBRARY_ARCHITECTURE}/pmix2/lib)
  if(NOT PMIX_INCLUDE_DIR OR NOT PMIX_LIBRARY)
    message(STATUS "without PMIx's headers no start but the launcher's")
    return()
  endif()
  add_executable(symmem-pmix-server ${CMAKE_CURRENT_FUNCTION_LIST_DIR}/pmix_server/server.c)
  target_include_directories(symmem-pmix-server SYSTEM PRIVATE ${PMIX_INCLUDE_DIR})
  target_link_libraries(symmem-pmix-server PRIVATE ${PMIX_LIBRARY})
  target_compile_options(symmem-pmix-server PRIVATE -Wall -Wextra -Wshadow)
  target_compile_definitions(symmem-pmix-server PRIVATE _GNU_SOURCE)
  install(TARGETS symmem-pmix-server RUNTIME DESTINATION ${symmem_BACKEND_DIR})
  add_own_start(${name} walk_kill.pool) # a killed rank leaves nothing
endfunction()

# LIBRARY is the engine's target; LAUNCHER a list in which %n stands for the ranks.
function(add_engine_plugin name library launcher)
  add_plugin(${name} SOURCES backend.c LIBRARIES ${library})
  add_check()

  file(GLOB defects CONFIGURE_DEPENDS defects/*.c)
  foreach(source ${defects})
    get_filename_component(defect ${source} NAME_WE)
    add_executable(${defect} ${source})
    target_link_libraries(${defect} PRIVATE ${library})
  endforeach()

  add_test(NAME bad_input COMMAND ${CMAKE_CURRENT_FUNCTION_LIST_DIR}/bad_input.sh $<TARGET_FILE:check>
    $<TARGET_FILE:symmem_backend_${name}> ${launcher})
  set_tests_properties(bad_input PROPERTIES TIMEOUT 300)
  string(JOIN " " words ${launcher})
  foreach(ranks 2 4)
    string(REPLACE "%n" ${ranks} command "${launcher}")
    set(store file:${CMAKE_CURRENT_BINARY_DIR}/store.${ranks})
    add_test(NAME check.${ranks} COMMAND ${command} $<TARGET_FILE:check>
      $<TARGET_FILE:symmem_backend_${name}>)
    set_tests_properties(check.${ranks} PROPERTIES TIMEOUT 120 ENVIRONMENT "SYMMEM_STORE=${store}")
    add_test(NAME suite.${ranks} COMMAND symmem::symmem-conformance --backend
      $<TARGET_FILE:symmem_backend_${name}> --ranks ${ranks} --launcher ${words} --filter ${FILTER}
      --no-large)
    set_tests_properties(suite.${ranks} PROPERTIES TIMEOUT 600)
  endforeach()
endfunction()
