# find_package(NVSHMEM): rushmem's nvshmem.h and libraries. It finds itself, so the tree may be moved.
#
#   nvshmem::nvshmem_host     libnvshmem_host.so and the headers
#   nvshmem::nvshmem_device   libnvshmem_device.a, for kernels of relocatable device code (where it was built)
#   nvshmem::nvshmem          both
#
#   NVSHMEM_VERSION, NVSHMEM_HOME, NVSHMEM_INCLUDE_DIR, NVSHMEM_LIBRARY_DIR

get_filename_component(NVSHMEM_HOME "${CMAKE_CURRENT_LIST_DIR}/../../.." ABSOLUTE)
set(NVSHMEM_VERSION "3.8.0")
set(NVSHMEM_INCLUDE_DIR "${NVSHMEM_HOME}/include")
set(NVSHMEM_LIBRARY_DIR "${NVSHMEM_HOME}/lib")

if(NOT EXISTS "${NVSHMEM_LIBRARY_DIR}/libnvshmem_host.so")
  set(NVSHMEM_FOUND FALSE)
  set(NVSHMEM_NOT_FOUND_MESSAGE
    "${NVSHMEM_LIBRARY_DIR}/libnvshmem_host.so is not there: make install-nvshmem again")
  return()
endif()

if(NOT TARGET nvshmem::nvshmem_host)
  add_library(nvshmem::nvshmem_host SHARED IMPORTED)
  set_target_properties(nvshmem::nvshmem_host PROPERTIES
    IMPORTED_LOCATION "${NVSHMEM_LIBRARY_DIR}/libnvshmem_host.so.3"
    IMPORTED_SONAME "libnvshmem_host.so.3"
    INTERFACE_INCLUDE_DIRECTORIES "${NVSHMEM_INCLUDE_DIR}")
endif()

if(NOT TARGET nvshmem::nvshmem_device AND EXISTS "${NVSHMEM_LIBRARY_DIR}/libnvshmem_device.a")
  add_library(nvshmem::nvshmem_device STATIC IMPORTED)
  set_target_properties(nvshmem::nvshmem_device PROPERTIES
    IMPORTED_LOCATION "${NVSHMEM_LIBRARY_DIR}/libnvshmem_device.a"
    IMPORTED_LINK_INTERFACE_LANGUAGES "CUDA;CXX"
    INTERFACE_INCLUDE_DIRECTORIES "${NVSHMEM_INCLUDE_DIR}"
    INTERFACE_LINK_LIBRARIES "nvshmem::nvshmem_host")
endif()

if(NOT TARGET nvshmem::nvshmem)
  add_library(nvshmem::nvshmem INTERFACE IMPORTED)
  set_target_properties(nvshmem::nvshmem PROPERTIES INTERFACE_LINK_LIBRARIES nvshmem::nvshmem_host)
  if(TARGET nvshmem::nvshmem_device)
    set_property(TARGET nvshmem::nvshmem APPEND PROPERTY INTERFACE_LINK_LIBRARIES nvshmem::nvshmem_device)
  endif()
endif()
