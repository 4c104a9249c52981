# Rooms: one static library per folder under src/, so that a test links what it tests and an arrow that
# the design forbids does not link. topocoll_library() makes the shared and static library of them all.

add_library(topocoll_flags INTERFACE)
target_include_directories(topocoll_flags INTERFACE
  $<BUILD_INTERFACE:${PROJECT_SOURCE_DIR}/include> $<BUILD_INTERFACE:${PROJECT_SOURCE_DIR}/src>)
# No contraction: a product is rounded before it is added, so that every target gives the same bits.
# Fields left out of a designated initializer take their default; gcc warns even where there is one.
target_compile_options(topocoll_flags INTERFACE
  -Wall -Wextra -Wpedantic -Wshadow -Wconversion -Wno-sign-conversion -Wno-missing-field-initializers
  -fno-math-errno -ffp-contract=off)
# To clear a small struct gcc starts `rep stos`, which takes tens of nanoseconds on every operation.
include(CheckCXXCompilerFlag)
set(inline_clearing "-mmemset-strategy=unrolled_loop:256:noalign,libcall:-1:noalign")
check_cxx_compiler_flag("${inline_clearing}" TOPOCOLL_HAVE_MEMSET_STRATEGY)
if(TOPOCOLL_HAVE_MEMSET_STRATEGY)
  target_compile_options(topocoll_flags INTERFACE ${inline_clearing})
endif()
if(TOPOCOLL_WERROR)
  target_compile_options(topocoll_flags INTERFACE -Werror)
endif()
if(TOPOCOLL_SANITIZE)
  # gcc's -fsanitize adds checks that make its own flow warnings fire on library headers.
  target_compile_options(topocoll_flags INTERFACE
    -fsanitize=${TOPOCOLL_SANITIZE} -fno-sanitize-recover=all -fno-omit-frame-pointer
    -Wno-maybe-uninitialized -Wno-tsan)
  target_link_options(topocoll_flags INTERFACE -fsanitize=${TOPOCOLL_SANITIZE})
endif()
if(TOPOCOLL_SANITIZE MATCHES undefined)
  # This check asks the kernel through a pipe whether an object's type can be read, and takes it for
  # broken where tests have used up all descriptors.
  target_compile_options(topocoll_flags INTERFACE -fno-sanitize=vptr)
endif()
if(TOPOCOLL_SANITIZE MATCHES address)
  # These checks, on every reference to a vector, make gcc take minutes over a file of SIMD kernels.
  file(GLOB kernels ${PROJECT_SOURCE_DIR}/src/collectives/cpu/reduce_*.cc)
  set_source_files_properties(${kernels} PROPERTIES COMPILE_OPTIONS
    "-fno-sanitize-address-use-after-scope;-fno-sanitize=null,object-size")
endif()

set(TOPOCOLL_ROOMS "")

function(topocoll_room name)
  cmake_parse_arguments(ARG "" "" "ROOMS;LIBRARIES" ${ARGN})
  file(GLOB_RECURSE sources CONFIGURE_DEPENDS ${PROJECT_SOURCE_DIR}/src/${name}/*.cc)
  if(NOT sources)
    return()
  endif()
  add_library(topocoll_${name} STATIC ${sources})
  target_link_libraries(topocoll_${name} PUBLIC topocoll_flags ${ARG_LIBRARIES})
  foreach(room IN LISTS ARG_ROOMS)
    if(TARGET topocoll_${room})
      target_link_libraries(topocoll_${name} PUBLIC topocoll_${room})
    endif()
  endforeach()
  set(TOPOCOLL_ROOMS ${TOPOCOLL_ROOMS} ${name} PARENT_SCOPE)
endfunction()

function(topocoll_library)
  set(objects "")
  foreach(room IN LISTS TOPOCOLL_ROOMS)
    list(APPEND objects $<TARGET_OBJECTS:topocoll_${room}>)
  endforeach()
  add_library(topocoll SHARED ${objects})
  add_library(topocoll_static STATIC ${objects})
  foreach(target topocoll topocoll_static)
    add_library(topocoll::${target} ALIAS ${target})
    target_include_directories(${target} PUBLIC
      $<BUILD_INTERFACE:${PROJECT_SOURCE_DIR}/include> $<INSTALL_INTERFACE:${CMAKE_INSTALL_INCLUDEDIR}>)
    target_link_libraries(${target} PRIVATE
      $<BUILD_INTERFACE:topocoll_flags> $<BUILD_INTERFACE:fmt::fmt>
      $<BUILD_INTERFACE:spdlog::spdlog_header_only> $<BUILD_INTERFACE:nlohmann_json::nlohmann_json>
      $<BUILD_INTERFACE:pugixml::pugixml>
      Threads::Threads $<BUILD_INTERFACE:Hwloc::hwloc> $<BUILD_INTERFACE:Highway::hwy>)
    target_compile_features(${target} PUBLIC cxx_std_20)
  endforeach()
  set_target_properties(topocoll PROPERTIES
    VERSION ${PROJECT_VERSION} SOVERSION ${PROJECT_VERSION_MAJOR}.${PROJECT_VERSION_MINOR}
    LINK_FLAGS "-Wl,--exclude-libs,ALL -Wl,-z,defs -Wl,--version-script=${PROJECT_SOURCE_DIR}/cmake/exports.map"
    LINK_DEPENDS ${PROJECT_SOURCE_DIR}/cmake/exports.map)
  if(TOPOCOLL_SANITIZE)
    set_target_properties(topocoll PROPERTIES LINK_FLAGS "-Wl,--exclude-libs,ALL")
  endif()
  set(TOPOCOLL_ROOMS ${TOPOCOLL_ROOMS} PARENT_SCOPE)
endfunction()
