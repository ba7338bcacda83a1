/* Types and constants of NVSHMEM's interface, with the values and layouts that bindings of other languages
 * count on. */
#ifndef RUSHMEM_NVSHMEM_TYPES_H
#define RUSHMEM_NVSHMEM_TYPES_H

#if defined(__CUDACC_RTC__)
#include <rushmem/impl/traits.h>
#else
#include <stddef.h>
#include <stdint.h>
#endif

/* Whether this is the compilation of a kernel. */
#if (defined(__CUDA_ARCH__) || defined(__CUDACC_RTC__) || defined(RUSHMEM_CPU)) && !defined(NVSHMEM_HOSTLIB_ONLY)
#define RUSHMEM_NVSHMEM_IN_KERNEL 1
#endif

/* In front of what hosts and kernels call. */
#ifdef __CUDACC__
#define RUSHMEM_NVSHMEM_BOTH __host__ __device__
#else
#define RUSHMEM_NVSHMEM_BOTH
#endif

/* CUDA's types. Programs that no CUDA compiler sees may do without its headers. */
#if defined(__CUDACC_RTC__)
#if __has_include(<cuda_fp16.h>) && __has_include(<cuda_bf16.h>)
#define RUSHMEM_NVSHMEM_HALVES 1
#endif
#elif !defined(RUSHMEM_CPU) && !defined(RUSHMEM_NVSHMEM_LIBRARY) && !defined(RUSHMEM_NVSHMEM_BITCODE) && \
    defined(__has_include)
#if __has_include(<cuda_runtime.h>)
#include <cuda_runtime.h>
#define RUSHMEM_NVSHMEM_CUDA 1
#if defined(__cplusplus)
#define RUSHMEM_NVSHMEM_HALVES 1
#endif
#endif
#endif
/* What NVSHMEM's headers bring along, and programs that nvcc compiles rely on. */
#if defined(__CUDACC__) && defined(__cplusplus) && !defined(__CUDACC_RTC__) && !defined(RUSHMEM_CPU) && \
    !defined(RUSHMEM_NVSHMEM_BITCODE)
#include <cooperative_groups.h>
#include <cuda.h>
#include <unistd.h>
#include <cassert>
#include <cerrno>
#include <cfloat>
#include <climits>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <string>
/* Internal to NVSHMEM; its own benchmarks call it. */
#define NVSHMEMI_ERROR_PRINT(...) (std::fprintf(stderr, "%s:%d: ", __FILE__, __LINE__), std::fprintf(stderr, __VA_ARGS__))
#endif
#ifdef RUSHMEM_NVSHMEM_HALVES
#include <cuda_fp16.h>
#include <cuda_bf16.h>
#elif !defined(RUSHMEM_CPU) && !defined(__CUDACC_RTC__) && !defined(RUSHMEM_NVSHMEM_BITCODE)
/* CUDA's headers have them for C++ alone. */
typedef struct {
  unsigned short x;
} __half;
typedef struct {
  unsigned short x;
} __nv_bfloat16;
#endif
#if !defined(__CUDACC_RTC__)
typedef struct CUstream_st *cudaStream_t;
typedef struct CUmod_st *CUmodule;
typedef struct CUlib_st *CUlibrary;
#endif

/* Of the specification that the interface follows, and of the NVSHMEM whose interface this is. */
#define NVSHMEM_MAJOR_VERSION 1
#define NVSHMEM_MINOR_VERSION 3
#define NVSHMEM_MAX_NAME_LEN 256
#define NVSHMEM_VENDOR_STRING "rushmem"
#define NVSHMEM_VENDOR_MAJOR_VERSION 3
#define NVSHMEM_VENDOR_MINOR_VERSION 8
#define NVSHMEM_VENDOR_PATCH_VERSION 0
#define NVSHMEM_VENDOR_PACKAGE_VERSION 0
/* As a number, to be compared: 30800. */
#define NVSHMEM_VENDOR_VERSION \
  (NVSHMEM_VENDOR_MAJOR_VERSION * 10000 + NVSHMEM_VENDOR_MINOR_VERSION * 100 + NVSHMEM_VENDOR_PATCH_VERSION)

typedef enum nvshmemi_cmp_type {
  NVSHMEM_CMP_EQ = 0, NVSHMEM_CMP_NE = 1, NVSHMEM_CMP_GT = 2, NVSHMEM_CMP_LE = 3, NVSHMEM_CMP_LT = 4,
  NVSHMEM_CMP_GE = 5
} nvshmemx_cmp_type_t;
typedef enum nvshmemi_signal_type { NVSHMEM_SIGNAL_SET = 9, NVSHMEM_SIGNAL_ADD = 10 } nvshmemx_signal_op_t;
typedef enum nvshmemi_thread_support {
  NVSHMEM_THREAD_SINGLE = 0, NVSHMEM_THREAD_FUNNELED = 1, NVSHMEM_THREAD_SERIALIZED = 2,
  NVSHMEM_THREAD_MULTIPLE = 3
} nvshmemx_thread_support_t;
typedef enum {
  NVSHMEM_STATUS_NOT_INITIALIZED = 0, NVSHMEM_STATUS_IS_BOOTSTRAPPED = 1, NVSHMEM_STATUS_IS_INITIALIZED = 2,
  NVSHMEM_STATUS_LIMITED_MPG = 3, NVSHMEM_STATUS_FULL_MPG = 4, NVSHMEM_STATUS_INVALID = 0x7fffffff
} nvshmemx_init_status_t;
typedef enum nvshmemx_status {
  NVSHMEMX_SUCCESS = 0, NVSHMEMX_ERROR_INVALID_VALUE = 1, NVSHMEMX_ERROR_OUT_OF_MEMORY = 2,
  NVSHMEMX_ERROR_NOT_SUPPORTED = 3, NVSHMEMX_ERROR_SYMMETRY = 4, NVSHMEMX_ERROR_GPU_NOT_SELECTED = 5,
  NVSHMEMX_ERROR_COLLECTIVE_LAUNCH_FAILED = 6, NVSHMEMX_ERROR_INTERNAL = 7
} nvshmemx_status;

/* Teams are integers. Those that programs make are numbered behind these. */
typedef int32_t nvshmem_team_t;
typedef nvshmem_team_t nvshmemx_team_t;
typedef enum nvshmemi_team_id {
  NVSHMEM_TEAM_INVALID = -1,
  NVSHMEM_TEAM_WORLD = 0, NVSHMEM_TEAM_WORLD_INDEX = 0,
  NVSHMEM_TEAM_SHARED = 1, NVSHMEM_TEAM_SHARED_INDEX = 1,
  NVSHMEMX_TEAM_NODE = 2, NVSHMEM_TEAM_NODE_INDEX = 2,
  NVSHMEMX_TEAM_SAME_MYPE_NODE = 3, NVSHMEM_TEAM_SAME_MYPE_NODE_INDEX = 3,
  NVSHMEMI_TEAM_SAME_GPU = 4, NVSHMEM_TEAM_SAME_GPU_INDEX = 4,
  NVSHMEMI_TEAM_GPU_LEADERS = 5, NVSHMEM_TEAM_GPU_LEADERS_INDEX = 5,
  NVSHMEM_TEAM_MC_SHARED = 6, NVSHMEM_TEAM_MC_SHARED_INDEX = 6,
  NVSHMEM_TEAMS_MIN = 7
} nvshmem_team_id_t;
#define nvshmem_sync nvshmem_team_sync
enum { NVSHMEM_PE_INVALID = -1, NVSHMEMX_PE_ANY = 1 << 15, NVSHMEMX_PE_ALL = 1 << 15 };

typedef uint64_t nvshmemx_team_uniqueid_t;
typedef struct {
  int version;
  int num_contexts;
  nvshmemx_team_uniqueid_t uniqueid;
  char padding[48];
} nvshmem_team_config_t;
#define NVSHMEM_TEAM_CONFIG_MASK_NUM_CONTEXTS 1L
#define NVSHMEM_TEAM_CONFIG_MASK_UNIQUEID 2L
#define NVSHMEM_TEAM_NUM_CONTEXTS NVSHMEM_TEAM_CONFIG_MASK_NUM_CONTEXTS
#define NVSHMEM_TEAM_CONFIG_INITIALIZER \
  {                                     \
    2, -1, 0, { 0 }                     \
  }
#define NVSHMEM_TEAM_UNIQUID_INITIALIZER 0

/* A unique ID, to be carried from one PE to the others whole. */
typedef struct {
  int version;
  char internal[124];
} nvshmemx_uniqueid_t;
#define NVSHMEMX_UNIQUEID_INITIALIZER \
  {                                   \
    1, { 0 }                          \
  }
typedef struct {
  int version;
  nvshmemx_uniqueid_t *id;
  int myrank;
  int nranks;
} nvshmemx_uniqueid_args_t;
typedef struct {
  int version;
  nvshmemx_uniqueid_args_t uid_args;
  int cuda_device_id; /* read where an initialiser has filled the structure; -1: the current one */
  char content[92];
} nvshmemx_init_args_t;
typedef struct {
  int version;
  void *mpi_comm; /* points at an MPI_Comm */
  nvshmemx_init_args_t args;
} nvshmemx_init_attr_t;
#define NVSHMEMX_UNIQUEID_ARGS_INITIALIZER \
  {                                        \
    1, NULL, 0, 0                          \
  }
#define NVSHMEM_INIT_ARGS_V2_IDENTIFIER ((int) ((2 << 16) + sizeof(nvshmemx_init_args_t)))
#define NVSHMEMX_INIT_ARGS_INITIALIZER                                                 \
  {                                                                                    \
    NVSHMEM_INIT_ARGS_V2_IDENTIFIER, NVSHMEMX_UNIQUEID_ARGS_INITIALIZER, -1, { 0 }     \
  }
#define NVSHMEMX_INIT_ARGS_V2_INITIALIZER NVSHMEMX_INIT_ARGS_INITIALIZER
#define NVSHMEM_INIT_ATTR_V1_IDENTIFIER ((int) ((1 << 16) + sizeof(nvshmemx_init_attr_t)))
#define NVSHMEM_INIT_ATTR_V2_IDENTIFIER ((int) ((2 << 16) + sizeof(nvshmemx_init_attr_t)))
#define NVSHMEMX_INIT_ATTR_INITIALIZER                                     \
  {                                                                        \
    NVSHMEM_INIT_ATTR_V2_IDENTIFIER, NULL, NVSHMEMX_INIT_ARGS_INITIALIZER  \
  }
#define NVSHMEMX_INIT_ATTR_V1_INITIALIZER                                  \
  {                                                                        \
    NVSHMEM_INIT_ATTR_V1_IDENTIFIER, NULL, NVSHMEMX_INIT_ARGS_INITIALIZER  \
  }
enum nvshmemx_init_flags {
  NVSHMEMX_INIT_THREAD_PES = 1, NVSHMEMX_INIT_WITH_MPI_COMM = 1 << 1, NVSHMEMX_INIT_WITH_SHMEM = 1 << 2,
  NVSHMEMX_INIT_WITH_UNIQUEID = 1 << 3
};

/* Queues, shared memory and batches are hints here: an operation takes the way to its PE that there is. */
typedef int nvshmemx_qp_handle_t;
enum {
  NVSHMEMX_QP_HOST = 0, NVSHMEMX_QP_DEFAULT = 1, NVSHMEMX_QP_ANY = 0x7fffffff, NVSHMEMX_QP_ALL = 0x7fffffff
};
typedef enum {
  NVSHMEMX_SMEM_RECOMMENDED = 0, NVSHMEMX_SMEM_MINIMUM = 1, NVSHMEMX_SMEM_BARRIERS_ONLY = 2
} nvshmemx_smem_amount_t;
typedef uint64_t nvshmemx_region_handle_t;
typedef enum { NVSHMEMX_REGION_HINT_NONE = 0, NVSHMEMX_REGION_HINT_BATCH_RMA = 1 } nvshmemx_region_hint_t;
typedef struct {
  uint32_t hints;
  char reserved[60];
} nvshmemx_region_attrs_t;
#define NVSHMEMX_REGION_ATTRS_INITIALIZER   \
  {                                         \
    NVSHMEMX_REGION_HINT_NONE, { 0 }        \
  }

#endif
