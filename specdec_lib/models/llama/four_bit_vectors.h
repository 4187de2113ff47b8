/* The products with a tile, by a `tile` for which the compiler knows the kind of codes and, through KNOWN, the rows. */
static void tile_of(int r, const Matrix *matrix, const uint8_t *codes, const uint16_t *scales, const int16_t *x,
                    const float *steps, const float *sums, const int32_t *starts, float (*out)[LANES]) {
    int64_t groups = groups_of(matrix);
    if (matrix->bits == 4 && matrix->minima) { KNOWN(r, 4, 1, codes, scales, groups, x, steps, sums, starts, out) }
    else if (matrix->bits == 4) { KNOWN(r, 4, 0, codes, scales, groups, x, steps, sums, starts, out) }
    else if (matrix->minima) { KNOWN(r, 8, 1, codes, scales, groups, x, steps, sums, starts, out) }
    else { KNOWN(r, 8, 0, codes, scales, groups, x, steps, sums, starts, out) }
}
