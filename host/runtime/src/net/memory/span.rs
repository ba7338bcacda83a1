//! Memory of a transfer as the bytes that it carries: elements at regular distances, kept apart from how they
//! travel, which is packed, in parts of any length.

use crate::gpu::copy::Strided;

/// Memory of a transfer: `count` elements of `elem` bytes, `stride` bytes from one to the next (which may run
/// downwards), seen as the bytes of all elements one after the other, of which any part can be copied.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Span {
    pub(crate) at: usize,
    pub(crate) stride: isize,
    pub(crate) elem: usize,
    pub(crate) count: usize,
}

/// A part of a span that one call copies.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Piece {
    pub(crate) memory: Strided,
    pub(crate) elem: usize,
    pub(crate) count: usize,
    /// Where it starts in the part, all of whose bytes are packed.
    pub(crate) packed: usize,
}

impl Span {
    /// A range of addresses.
    pub(crate) fn contiguous(at: usize, bytes: usize) -> Span {
        Span { at, stride: bytes as isize, elem: bytes, count: 1 }
    }

    /// Whether its elements lie one behind the other.
    pub(crate) fn is_packed(&self) -> bool {
        self.count <= 1 || self.stride == self.elem as isize
    }

    /// Bytes of all elements.
    pub(crate) fn bytes(&self) -> usize {
        self.elem * self.count
    }

    /// The address of the byte at `offset`, and how many of its element's bytes begin there.
    #[inline]
    pub(crate) fn place(&self, offset: usize) -> (usize, usize) {
        let (index, within) = (offset / self.elem, offset % self.elem);
        (self.at.wrapping_add_signed(index as isize * self.stride) + within, self.elem - within)
    }

    /// What to copy for the span's bytes from `offset` on, `len` of them: what is left of an element, whole
    /// elements, and the beginning of one; each element by itself where they run downwards or overlap.
    pub(crate) fn pieces(&self, offset: usize, len: usize) -> impl Iterator<Item = Piece> {
        debug_assert!(offset + len <= self.bytes(), "{self:?}, {len} bytes at {offset}");
        let span = *self;
        let mut packed = 0;
        std::iter::from_fn(move || {
            let left = len - packed;
            if left == 0 {
                return None;
            }
            let (at, room) = span.place(offset + packed);
            let (elem, count) = if room < span.elem || left < span.elem {
                (room.min(left), 1)
            } else if span.stride < span.elem as isize {
                (span.elem, 1)
            } else {
                (span.elem, left / span.elem)
            };
            let memory = Strided { at, stride: span.stride.unsigned_abs() };
            let piece = Piece { memory, elem, count, packed };
            packed += elem * count;
            Some(piece)
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Every part of every small span: the pieces are the model's bytes in order, and few.
    #[test]
    fn parts_of_spans() {
        for (elem, count, stride) in [
            (1, 1, 1),
            (1, 7, 1),
            (1, 5, 4),
            (3, 4, 5),
            (8, 3, 16),
            (5, 1, 5),
            (4, 6, 4),
            (0, 3, 4),
            (4, 0, 4),
            (4, 6, -4),
            (3, 5, -7),
            (4, 3, 2),
            (2, 4, 0),
        ] {
            let span = Span { at: 1000, stride, elem, count };
            let first = |i: usize| 1000usize.wrapping_add_signed(i as isize * stride);
            let model: Vec<usize> = (0..count).flat_map(|i| (0..elem).map(move |b| first(i) + b)).collect();
            assert_eq!(span.bytes(), model.len());
            for offset in 0..=model.len() {
                for len in 0..=model.len() - offset {
                    let pieces: Vec<Piece> = span.pieces(offset, len).collect();
                    assert!(pieces.len() <= 3 || stride < elem as isize, "{pieces:?}");
                    let mut bytes = Vec::new();
                    for piece in &pieces {
                        assert_eq!(piece.packed, bytes.len());
                        for i in 0..piece.count {
                            bytes.extend(
                                (0..piece.elem).map(|b| piece.memory.at + i * piece.memory.stride + b),
                            );
                        }
                    }
                    assert_eq!(bytes, model[offset..offset + len], "{span:?}, {len} at {offset}");
                }
            }
        }
        let span = Span::contiguous(4096, 100);
        assert_eq!(span.bytes(), 100);
        assert_eq!(span.pieces(0, 100).count(), 1);
        assert_eq!(Span::contiguous(4096, 0).pieces(0, 0).count(), 0);
    }
}
