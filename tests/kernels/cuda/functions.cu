// Mathematical functions: `rsqrt`, `sinpi`, `cospi`, `erfinv`, `erfcinv`, `erfcx`, `normcdf`,
// `norm3d`, fast forms as `__expf`
extern "C" __global__ void probe(const unsigned *random, unsigned *good) {
  const unsigned i = threadIdx.x;
  const double t = (random[i] % 1000 + 1) / 1002.0;
  good[i] = fabs(rsqrt(t) * sqrt(t) - 1) < 1e-14 && sinpi(3.0) == 0 && cospi(0.5) == 0 &&
            fabs(erf(erfinv(t)) - t) < 1e-13 && fabs(erfc(erfcinv(t)) - t) < 1e-13 &&
            fabs(normcdf(normcdfinv(t)) - t) < 1e-13 && fabs(erfcx(t) - exp(t * t) * erfc(t)) < 1e-13 &&
            fabs(norm3d(t, 2 * t, 2 * t) - 3 * t) < 1e-14 && fabsf(__expf((float)t) - expf((float)t)) < 1e-5f &&
            fabsf(__fdividef(1.0f, (float)t) * (float)t - 1.0f) < 1e-5f;
}
