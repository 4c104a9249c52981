# GPU kernels, if there is a compiler for them: a room's .cu files become one fat binary in an array. It holds
# machine code for data-centre GPUs, and PTX that the driver translates for all others since Turing.

find_program(TOPOCOLL_NVCC nvcc HINTS ENV CUDA_HOME ENV CUDA_PATH PATHS /usr/local/cuda PATH_SUFFIXES bin
  DOC "CUDA compiler; without one GPUs are measured by their copy engines only")
set(nvcc_fatbin ${TOPOCOLL_NVCC} -std=c++17 -O3 -fatbin -gencode arch=compute_75,code=compute_75
  -gencode arch=compute_80,code=sm_80 -gencode arch=compute_90,code=sm_90)

# One that does not like this machine's C++ compiler, or is too old for these targets, is none.
if(TOPOCOLL_NVCC AND NOT TOPOCOLL_NVCC_WORKS STREQUAL TOPOCOLL_NVCC)
  file(WRITE ${CMAKE_BINARY_DIR}/check_nvcc.cu "#include <cstddef>\n__global__ void nothing() {}\n")
  file(REMOVE ${CMAKE_BINARY_DIR}/check_nvcc.fatbin)
  execute_process(COMMAND ${nvcc_fatbin} -o ${CMAKE_BINARY_DIR}/check_nvcc.fatbin ${CMAKE_BINARY_DIR}/check_nvcc.cu
    RESULT_VARIABLE failed OUTPUT_VARIABLE words ERROR_VARIABLE words)
  if(NOT failed AND EXISTS ${CMAKE_BINARY_DIR}/check_nvcc.fatbin)
    set(TOPOCOLL_NVCC_WORKS ${TOPOCOLL_NVCC} CACHE INTERNAL "The CUDA compiler that was tried")
  else()
    message(WARNING "${TOPOCOLL_NVCC} cannot be used (-D TOPOCOLL_NVCC=... names another one): ${failed}\n${words}")
  endif()
endif()

# topocoll_kernels(room name): src/room/name.cu becomes what name() of src/room/name.h returns, a
# std::span<const std::byte> that is empty without a compiler.
function(topocoll_kernels room name)
  set(source ${PROJECT_SOURCE_DIR}/src/${room}/${name}.cu)
  set(embed ${PROJECT_SOURCE_DIR}/cmake/embed.cmake)
  # The compiler may come and go between two builds in one folder, so the files with and without it are others.
  if(TOPOCOLL_NVCC AND TOPOCOLL_NVCC_WORKS STREQUAL TOPOCOLL_NVCC)
    set(binary ${CMAKE_CURRENT_BINARY_DIR}/${name}.fatbin)
    set(array ${CMAKE_CURRENT_BINARY_DIR}/${name}.cc)
    add_custom_command(OUTPUT ${binary} COMMAND ${nvcc_fatbin} -o ${binary} ${source} DEPENDS ${source} VERBATIM)
  else()
    message(STATUS "No CUDA compiler: GPUs are measured by their copy engines only")
    set(binary ${CMAKE_CURRENT_BINARY_DIR}/no_${name}.fatbin)
    set(array ${CMAKE_CURRENT_BINARY_DIR}/no_${name}.cc)
    if(NOT EXISTS ${binary})
      file(WRITE ${binary} "")
    endif()
  endif()
  add_custom_command(OUTPUT ${array}
    COMMAND ${CMAKE_COMMAND} -D INPUT=${binary} -D OUTPUT=${array} -D HEADER=${room}/${name}.h -D FUNCTION=${name} -P ${embed}
    DEPENDS ${binary} ${embed} VERBATIM)
  target_sources(topocoll_${room} PRIVATE ${array})
endfunction()
