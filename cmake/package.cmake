# SPDX-License-Identifier: Apache-2.0
# cmake --install, and the Debian package:  cpack -G DEB --config build/release/CPackConfig.cmake
include(GNUInstallDirs)

install(TARGETS headgate RUNTIME DESTINATION ${CMAKE_INSTALL_BINDIR})
# headgate(8), by the program itself from the texts of --help.
find_program(HEADGATE_GZIP gzip REQUIRED)
add_custom_command(OUTPUT ${PROJECT_BINARY_DIR}/headgate.8.gz
  COMMAND headgate help --man > ${PROJECT_BINARY_DIR}/headgate.8
  COMMAND ${HEADGATE_GZIP} -9nf ${PROJECT_BINARY_DIR}/headgate.8
  DEPENDS headgate VERBATIM)
add_custom_target(headgate_man ALL DEPENDS ${PROJECT_BINARY_DIR}/headgate.8.gz)
install(FILES ${PROJECT_BINARY_DIR}/headgate.8.gz DESTINATION ${CMAKE_INSTALL_MANDIR}/man8)
install(FILES README.md LICENSES/BSD-2-Clause.txt deploy/debian/copyright
  DESTINATION ${CMAKE_INSTALL_DOCDIR})
# Absolute on purpose: the unit and the configuration have one place on a host, whatever the prefix.
set(HEADGATE_UNIT_DIR /lib/systemd/system CACHE PATH "Where the systemd unit is installed")
install(FILES deploy/systemd/headgate.service DESTINATION ${HEADGATE_UNIT_DIR})
install(FILES deploy/systemd/headgate.yaml DESTINATION /etc/headgate)

set(CPACK_GENERATOR DEB)
set(CPACK_PACKAGE_NAME headgate)
set(CPACK_PACKAGE_VENDOR "Headgate")
set(CPACK_PACKAGE_DESCRIPTION_SUMMARY "${PROJECT_DESCRIPTION}")
set(CPACK_PACKAGE_DESCRIPTION
"Headgate is a node agent that watches the CPU and memory of a protected process
against its own cgroup limits, and refuses the excess of new connections in the
kernel before the process spends anything on them. What it refuses is bounded by
a lease in the kernel: when the agent stops, traffic flows again.")
set(CPACK_PACKAGING_INSTALL_PREFIX /usr)
set(CPACK_INSTALL_DEFAULT_DIRECTORY_PERMISSIONS
  OWNER_READ OWNER_WRITE OWNER_EXECUTE GROUP_READ GROUP_EXECUTE WORLD_READ WORLD_EXECUTE)
set(CPACK_STRIP_FILES ON)
set(CPACK_DEBIAN_FILE_NAME DEB-DEFAULT)
set(CPACK_DEBIAN_PACKAGE_MAINTAINER "the Headgate authors <headgate@localhost>")
set(CPACK_DEBIAN_PACKAGE_SECTION net)
set(CPACK_DEBIAN_PACKAGE_SHLIBDEPS ON)
set(CPACK_DEBIAN_PACKAGE_GENERATE_SHLIBS OFF)
set(CPACK_DEBIAN_PACKAGE_CONTROL_STRICT_PERMISSION ON)
set(CPACK_DEBIAN_PACKAGE_CONTROL_EXTRA
  ${PROJECT_SOURCE_DIR}/deploy/debian/conffiles
  ${PROJECT_SOURCE_DIR}/deploy/debian/postinst
  ${PROJECT_SOURCE_DIR}/deploy/debian/prerm
  ${PROJECT_SOURCE_DIR}/deploy/debian/postrm)
include(CPack)
