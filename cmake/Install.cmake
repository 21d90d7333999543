# What `make install` puts below the prefix: tool, headers, both libraries, the pkg-config file, the
# CMake package, man page and shell completion. Nothing in it names the prefix, so the tree may move.

include(CMakePackageConfigHelpers)

set(package_dir ${CMAKE_INSTALL_LIBDIR}/cmake/ferry)

install(TARGETS ferry_cli)
install(TARGETS ferry ferry_static EXPORT ferryTargets)
install(DIRECTORY include/ferry TYPE INCLUDE FILES_MATCHING PATTERN "*.h")

install(EXPORT ferryTargets NAMESPACE ferry:: DESTINATION ${package_dir})
configure_package_config_file(cmake/ferryConfig.cmake.in ferryConfig.cmake
                              INSTALL_DESTINATION ${package_dir})
write_basic_package_version_file(ferryConfigVersion.cmake COMPATIBILITY SameMinorVersion)
install(FILES ${PROJECT_BINARY_DIR}/ferryConfig.cmake
              ${PROJECT_BINARY_DIR}/ferryConfigVersion.cmake
        DESTINATION ${package_dir})

# The way from the folder of ferry.pc back to the prefix: ../.. on most systems.
cmake_path(RELATIVE_PATH CMAKE_INSTALL_PREFIX
           BASE_DIRECTORY ${CMAKE_INSTALL_FULL_LIBDIR}/pkgconfig OUTPUT_VARIABLE pc_to_prefix)
configure_file(cmake/ferry.pc.in ferry.pc @ONLY)
install(FILES ${PROJECT_BINARY_DIR}/ferry.pc DESTINATION ${CMAKE_INSTALL_LIBDIR}/pkgconfig)

if(NOT CMAKE_CROSSCOMPILING)
    install(FILES ${PROJECT_BINARY_DIR}/ferry.1 DESTINATION ${CMAKE_INSTALL_MANDIR}/man1)
    install(FILES ${PROJECT_BINARY_DIR}/ferry.bash RENAME ferry
            DESTINATION ${CMAKE_INSTALL_DATADIR}/bash-completion/completions)
endif()
