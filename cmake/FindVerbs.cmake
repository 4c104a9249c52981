# Verbs::headers: what libibverbs' programs are built with. The library itself is loaded at run time, so that one
# build serves machines with and without it; a build without the headers measures no RDMA port, and says so.
find_path(VERBS_INCLUDE_DIR infiniband/verbs.h)
if(NOT TARGET Verbs::headers)
  add_library(Verbs::headers INTERFACE IMPORTED)
  if(VERBS_INCLUDE_DIR)
    set_target_properties(Verbs::headers PROPERTIES
      INTERFACE_INCLUDE_DIRECTORIES ${VERBS_INCLUDE_DIR} INTERFACE_COMPILE_DEFINITIONS TOPOCOLL_VERBS)
  else()
    message(STATUS "No infiniband/verbs.h (Debian: libibverbs-dev): RDMA ports are not measured")
  endif()
endif()
