//! A long array in pieces, which a table uses instead of a vector.
//!
//! Owns: [`Pieces`]. Its numbers lie in whole pieces of [`IndexMemory`], and the rest, less than a
//! piece, in its own vector. So a small table takes no piece, and none of a large one is empty. It
//! grows without a copy of what is present. Callers: both forms of entries.

use super::memory::{IndexMemory, IndexPiece};

/// See the module text.
#[derive(Debug)]
pub(super) struct Pieces<T: Copy + Default> {
    whole: Vec<IndexPiece<T>>,
    /// Fewer numbers than a piece has.
    rest: Vec<T>,
    memory: IndexMemory,
}

impl<T: Copy + Default> Pieces<T> {
    /// None, which takes no memory.
    pub(super) fn new(memory: &IndexMemory) -> Pieces<T> {
        Pieces { whole: Vec::new(), rest: Vec::new(), memory: memory.clone() }
    }

    /// None, with capacity for a number of them.
    pub(super) fn with_capacity(memory: &IndexMemory, count: usize) -> Pieces<T> {
        Pieces {
            whole: Vec::with_capacity(count / IndexPiece::<T>::LEN),
            rest: Vec::with_capacity(count.min(IndexPiece::<T>::LEN)),
            memory: memory.clone(),
        }
    }

    /// The memory that it is from.
    pub(super) fn memory(&self) -> &IndexMemory {
        &self.memory
    }

    pub(super) fn len(&self) -> usize {
        self.whole.len() * IndexPiece::<T>::LEN + self.rest.len()
    }

    /// Bytes allocated in addition to the memory that all tables share.
    pub(super) fn own_bytes(&self) -> usize {
        self.whole.capacity() * size_of::<IndexPiece<T>>() + self.rest.capacity() * size_of::<T>()
    }

    /// The slice in which the number is that has this index, and the index in it.
    #[inline]
    fn slice_at(&self, index: usize) -> (&[T], usize) {
        debug_assert!(self.rest.len() < IndexPiece::<T>::LEN, "the rest is less than a piece");
        let (piece, within) = (index / IndexPiece::<T>::LEN, index % IndexPiece::<T>::LEN);
        match self.whole.get(piece) {
            Some(piece) => (piece, within),
            None => (&self.rest, index - self.whole.len() * IndexPiece::<T>::LEN),
        }
    }

    #[inline]
    pub(super) fn get(&self, index: usize) -> Option<T> {
        let (slice, within) = self.slice_at(index);
        slice.get(within).copied()
    }

    #[inline]
    pub(super) fn get_mut(&mut self, index: usize) -> Option<&mut T> {
        self.slice_from_mut(index).first_mut()
    }

    /// The numbers from an index on that lie together with it.
    #[inline]
    pub(super) fn slice_from_mut(&mut self, index: usize) -> &mut [T] {
        let (piece, within) = (index / IndexPiece::<T>::LEN, index % IndexPiece::<T>::LEN);
        let before = self.whole.len() * IndexPiece::<T>::LEN;
        match self.whole.get_mut(piece) {
            Some(piece) => &mut piece[within..],
            None => self.rest.get_mut(index - before..).unwrap_or_default(),
        }
    }

    /// The number at this index and the next.
    #[inline]
    pub(super) fn pair(&self, index: usize) -> Option<(T, T)> {
        let (slice, within) = self.slice_at(index);
        match slice.get(within..within + 2) {
            Some(pair) => Some((pair[0], pair[1])),
            None => Some((self.get(index)?, self.get(index + 1)?)),
        }
    }

    /// Address of a number, for a prefetch. An index after the last gives any address.
    #[inline]
    pub(super) fn address(&self, index: usize) -> *const T {
        let (slice, within) = self.slice_at(index);
        slice.as_ptr().wrapping_add(within)
    }

    /// The numbers from an index on that lie together with it.
    #[inline]
    pub(super) fn slice_from(&self, index: usize) -> &[T] {
        let (slice, within) = self.slice_at(index);
        slice.get(within..).unwrap_or_default()
    }

    /// The numbers from an index on, in slices that follow each other.
    pub(super) fn slices_from(&self, index: usize) -> impl Iterator<Item = &[T]> + Clone {
        let first = (index / IndexPiece::<T>::LEN).min(self.whole.len());
        debug_assert!(index >= first * IndexPiece::<T>::LEN, "an index is not before its slice");
        let skipped = index - first * IndexPiece::<T>::LEN;
        let whole = self.whole[first..].iter().map(|piece| &**piece);
        let slices = whole.chain([self.rest.as_slice()]).enumerate();
        slices.map(move |(number, slice)| match number {
            0 => slice.get(skipped..).unwrap_or_default(),
            _ => slice,
        })
    }

    pub(super) fn iter(&self) -> impl Iterator<Item = T> + Clone {
        self.slices_from(0).flatten().copied()
    }

    #[inline]
    pub(super) fn push(&mut self, number: T) {
        self.rest.push(number);
        debug_assert!(self.rest.len() <= IndexPiece::<T>::LEN, "a whole piece is sealed");
        if self.rest.len() == IndexPiece::<T>::LEN {
            self.seal();
        }
    }

    /// Appends numbers, many at a time.
    pub(super) fn extend(&mut self, mut numbers: impl ExactSizeIterator<Item = T>) {
        while numbers.len() > 0 {
            debug_assert!(self.rest.len() < IndexPiece::<T>::LEN, "a whole piece is sealed");
            let begin = self.rest.len();
            let end = IndexPiece::<T>::LEN.min(begin + numbers.len());
            debug_assert!(begin < end, "there is room in the rest");
            self.rest.resize(end, T::default());
            for (to, number) in self.rest[begin..].iter_mut().zip(numbers.by_ref()) {
                *to = number;
            }
            if self.rest.len() == IndexPiece::<T>::LEN {
                self.seal();
            }
        }
    }

    /// The rest has become a whole piece.
    fn seal(&mut self) {
        assert_eq!(self.rest.len(), IndexPiece::<T>::LEN, "a piece is sealed when it is whole");
        self.whole.push(IndexPiece::of(&self.memory, &self.rest));
        self.rest.clear();
    }

    pub(super) fn shrink_to_fit(&mut self) {
        self.rest.shrink_to_fit();
        self.whole.shrink_to_fit();
    }

    /// Takes the numbers out from the first to the last, and gives each piece up that was read.
    pub(super) fn into_slices(self, mut visit: impl FnMut(&[T])) {
        self.whole.into_iter().for_each(|piece| visit(&piece));
        visit(&self.rest);
    }
}

#[cfg(test)]
mod tests {
    use super::super::memory::{CHUNK_BYTES, IndexMemory, IndexPiece};
    use super::Pieces;
    use crate::SeededRandom;

    /// The same numbers, however they are read.
    fn assert_same(pieces: &mut Pieces<u64>, model: &[u64]) {
        assert_eq!(pieces.len(), model.len());
        assert!(pieces.iter().eq(model.iter().copied()));
        for index in 0..=model.len() {
            let pair = model.get(index..index + 2).map(|pair| (pair[0], pair[1]));
            assert_eq!(pieces.pair(index), pair);
            assert_eq!(pieces.get(index), model.get(index).copied());
            assert_eq!(pieces.get_mut(index).copied(), model.get(index).copied());
            assert!(model[index..].starts_with(pieces.slice_from(index)));
            assert_eq!(pieces.slice_from(index).is_empty(), index == model.len());
        }
        let from = model.len() / 2;
        assert!(pieces.slices_from(from).flatten().eq(&model[from..]));
    }

    #[test]
    fn pieces_are_a_vector() {
        const LEN: usize = IndexPiece::<u64>::LEN;
        let mut random = SeededRandom::new(3);
        for target in [0, 1, LEN - 1, LEN, LEN + 1, 5 * LEN + 7] {
            let memory = IndexMemory::default();
            let mut pieces = match target % 2 {
                0 => Pieces::new(&memory),
                _ => Pieces::with_capacity(&memory, target),
            };
            let mut model = Vec::new();
            while model.len() < target {
                let room = (target - model.len()) as u64;
                let some: Vec<u64> = (0..random.below(room) + 1).map(|_| random.number()).collect();
                if random.below(2) == 0 {
                    pieces.extend(some.iter().copied());
                } else {
                    some.iter().for_each(|number| pieces.push(*number));
                }
                model.extend(some);
            }
            pieces.shrink_to_fit();
            assert_same(&mut pieces, &model);
            for _ in 0..target {
                let (index, number) = (random.below(target as u64) as usize, random.number());
                *pieces.get_mut(index).expect("it is there") = number;
                model[index] = number;
            }
            assert_same(&mut pieces, &model);
            let mut read = Vec::new();
            pieces.into_slices(|slice| read.extend_from_slice(slice));
            assert_eq!(read, model);
            assert!(memory.bytes() <= CHUNK_BYTES, "all pieces were given up");
        }
    }
}
