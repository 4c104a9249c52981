# cmake --install BUILD [--prefix P] [--component development]: headers, the shared library, a CMake
# package and a pkg-config file, all of which may be moved together.
include(CMakePackageConfigHelpers)

install(TARGETS topocoll EXPORT topocoll COMPONENT development)
install(DIRECTORY include/topocoll DESTINATION ${CMAKE_INSTALL_INCLUDEDIR} COMPONENT development
        FILES_MATCHING PATTERN "*.h")

set(package_dir ${CMAKE_INSTALL_LIBDIR}/cmake/topocoll)
install(EXPORT topocoll FILE topocoll-config.cmake NAMESPACE topocoll:: DESTINATION ${package_dir}
        COMPONENT development)
# Before 1.0 a minor version may change the API.
write_basic_package_version_file(${PROJECT_BINARY_DIR}/topocoll-config-version.cmake
  COMPATIBILITY SameMinorVersion)
install(FILES ${PROJECT_BINARY_DIR}/topocoll-config-version.cmake DESTINATION ${package_dir}
        COMPONENT development)

set(pkgconfig_dir ${CMAKE_INSTALL_LIBDIR}/pkgconfig)
cmake_path(RELATIVE_PATH CMAKE_INSTALL_FULL_LIBDIR BASE_DIRECTORY ${CMAKE_INSTALL_FULL_LIBDIR}/pkgconfig
           OUTPUT_VARIABLE pc_libdir)
cmake_path(RELATIVE_PATH CMAKE_INSTALL_FULL_INCLUDEDIR
           BASE_DIRECTORY ${CMAKE_INSTALL_FULL_LIBDIR}/pkgconfig OUTPUT_VARIABLE pc_includedir)
configure_file(cmake/topocoll.pc.in ${PROJECT_BINARY_DIR}/topocoll.pc @ONLY)
install(FILES ${PROJECT_BINARY_DIR}/topocoll.pc DESTINATION ${pkgconfig_dir} COMPONENT development)
