/* For sources that include CUDA's own header: rushmem_cpu/cuda.h has been included already. */
