//! The numbers and strings of generated rows.
//!
//! Invariants: the same mode and seed give the same sequence as `kudu perf loadgen` of Kudu 1.18,
//! value for value. Rows of both tools can therefore be compared and deleted by each other, and a
//! rerun with the same random seed meets its own keys again. One call of any method takes exactly
//! one number. The zipfian choice, which that tool lacks, is that of `oribi perf kv`. A value costs
//! no allocation.

use crate::perf::key_choice::{self, KeyChoice, Popularity, ZIPF_EXPONENT_DEFAULT};

/// Modulus of the random numbers, a Mersenne prime: `x mod M` needs no division.
const M: u32 = 0x7fff_ffff;

/// Multiplier of the "minimal standard" generator of Park and Miller.
const A: u64 = 16_807;

/// Random numbers of 31 bits that depend only on the seed.
#[derive(Clone, Debug)]
struct Random {
    state: u32,
}

impl Random {
    fn new(seed: u32) -> Random {
        let seed = seed & M;
        // Both would repeat themselves forever.
        Random { state: if seed == 0 || seed == M { 1 } else { seed } }
    }

    fn next_u31(&mut self) -> u32 {
        let product = u64::from(self.state) * A;
        // x << 31 is x modulo M, so the upper bits are just added; once may carry.
        let sum = (product >> 31) + (product & u64::from(M));
        let reduced = if sum > u64::from(M) { sum - u64::from(M) } else { sum };
        // At most M after the second reduction.
        self.state = reduced as u32;
        self.state
    }

    fn next_u64(&mut self) -> u64 {
        let high = u64::from(self.next_u31());
        let low = u64::from(self.next_u31());
        let top = u64::from(self.next_u31()) << 62;
        (high << 31) | low | top
    }
}

#[derive(Clone, Debug)]
enum Source {
    Sequence(u64),
    Random(Random),
    Chosen { choice: KeyChoice, generator: key_choice::KeyGenerator, first: u64 },
}

/// A sequence of values for columns of any type.
#[derive(Clone, Debug)]
pub struct RowGenerator {
    source: Source,
    string_bytes: usize,
    text: Vec<u8>,
}

impl RowGenerator {
    /// Numbers from `seed` on, one after the other.
    pub fn sequential(seed: i64, string_bytes: usize) -> RowGenerator {
        // Sequences wrap around, as the other tool's do, so the sign is of no importance.
        RowGenerator::new(Source::Sequence(seed.cast_unsigned()), string_bytes)
    }

    /// Random numbers that depend on `seed` only.
    pub fn random(seed: i64, string_bytes: usize) -> RowGenerator {
        // Only the lower 31 bits count.
        RowGenerator::new(Source::Random(Random::new(seed as u32)), string_bytes)
    }

    /// Numbers of `first` and the `keys - 1` after it, the first of them most often. Those of
    /// another thread are other choices among the same numbers.
    pub fn zipfian(first: u64, keys: u64, thread: u64, string_bytes: usize) -> RowGenerator {
        let choice = KeyChoice::new(Popularity::Zipf(ZIPF_EXPONENT_DEFAULT), keys, 0..keys);
        // There are at most 1024 threads.
        let generator = key_choice::generator(0, thread as usize);
        RowGenerator::new(Source::Chosen { choice, generator, first }, string_bytes)
    }

    fn new(source: Source, string_bytes: usize) -> RowGenerator {
        RowGenerator { source, string_bytes, text: Vec::with_capacity(string_bytes) }
    }

    /// The next number, of 64 bits.
    pub fn next_u64(&mut self) -> u64 {
        match &mut self.source {
            Source::Sequence(next) => {
                let number = *next;
                *next = next.wrapping_add(1);
                number
            }
            Source::Random(random) => random.next_u64(),
            Source::Chosen { choice, generator, first } => {
                first.wrapping_add(choice.next(generator))
            }
        }
    }

    /// The next number without its sign.
    pub fn next_i64(&mut self) -> i64 {
        (self.next_u64() & i64::MAX.cast_unsigned()).cast_signed()
    }

    /// The next number, cut to 31 bits.
    pub fn next_i32(&mut self) -> i32 {
        (self.next_u64() & u64::from(i32::MAX.cast_unsigned())) as i32
    }

    /// The next number, cut to 15 bits.
    pub fn next_i16(&mut self) -> i16 {
        (self.next_u64() & u64::from(i16::MAX.cast_unsigned())) as i16
    }

    /// The next number, cut to 7 bits.
    pub fn next_i8(&mut self) -> i8 {
        (self.next_u64() & u64::from(i8::MAX.cast_unsigned())) as i8
    }

    /// The last bit of the next number.
    pub fn next_bool(&mut self) -> bool {
        self.next_u64() & 1 == 1
    }

    /// The next number as digits and a point, filled with `x` or cut to the length.
    pub fn next_text(&mut self) -> &str {
        let mut digits = itoa::Buffer::new();
        let digits = digits.format(self.next_u64());
        self.text.clear();
        self.text.extend_from_slice(digits.as_bytes());
        self.text.push(b'.');
        self.text.resize(self.string_bytes, b'x');
        std::str::from_utf8(&self.text).expect("digits, a point and letters are ASCII")
    }
}

/// How many numbers each thread has for its keys, so that threads never meet: all of them when rows
/// have no limit.
pub fn span_per_thread(rows_per_thread: i64, threads: u64, key_columns: usize) -> i64 {
    // At most 1024 threads and 300 columns, far from any overflow.
    let threads = threads.cast_signed();
    let key_columns = key_columns as i64;
    if rows_per_thread < 0 || rows_per_thread > i64::MAX / (key_columns * threads) {
        i64::MAX / threads
    } else {
        rows_per_thread * key_columns
    }
}

#[cfg(test)]
mod tests {
    //! Known answers, computed by hand from the recurrence or seen in rows of the other tool.

    use super::*;

    #[test]
    fn sequences_count_from_the_seed() {
        let mut generator = RowGenerator::sequential(7, 8);
        assert_eq!(generator.next_i64(), 7);
        assert_eq!(generator.next_text(), "8.xxxxxx");
        assert_eq!(generator.next_i8(), 9);
        assert!(!generator.next_bool());
        assert!(generator.next_bool());
    }

    #[test]
    fn numbers_fit_the_column_and_are_not_negative() {
        let at = |number: i64| RowGenerator::sequential(number, 4);
        assert_eq!(at(-1).next_i64(), i64::MAX);
        assert_eq!(at(0x8000_0001).next_i32(), 1);
        assert_eq!(at(0x1_8002).next_i16(), 2);
        assert_eq!(at(0x83).next_i8(), 3);
        let mut wraps = at(-1);
        assert_eq!((wraps.next_u64(), wraps.next_u64()), (u64::MAX, 0));
    }

    #[test]
    fn texts_have_exactly_the_length() {
        let mut generator = RowGenerator::sequential(123_456, 3);
        assert_eq!(generator.next_text(), "123");
        assert_eq!(RowGenerator::sequential(12, 3).next_text(), "12.");
        assert_eq!(RowGenerator::sequential(12, 0).next_text(), "");
        assert_eq!(RowGenerator::sequential(1, 32).next_text(), format!("1.{}", "x".repeat(30)));
    }

    #[test]
    fn random_numbers_follow_the_minimal_standard() {
        // The published check of this generator: the 10 000th number from seed 1 is 1 043 618 065.
        let mut random = Random::new(1);
        let last = (0..10_000).map(|_| random.next_u31()).last();
        assert_eq!(last, Some(1_043_618_065));
        for bad in [0, M, 0x8000_0000] {
            assert_eq!(Random::new(bad).next_u31(), 16_807);
        }
    }

    #[test]
    fn random_values_are_those_of_the_other_tool() {
        // Rows that `kudu perf loadgen --use_random_pk --use_random_non_pk --seq_start=42` of Kudu
        // 1.18.1 wrote: three keys, and the texts, which take every other number.
        let mut keys = RowGenerator::random(42, 32);
        let keys = [(); 3].map(|()| keys.next_i64());
        assert_eq!(
            keys,
            [4_613_201_915_376_151_439, 5_825_968_499_681_925_994, 4_500_423_931_799_512_008]
        );
        let mut others = RowGenerator::random(42, 32);
        let rows = [(); 3].map(|()| (others.next_i32(), others.next_text().to_owned()));
        let expected = [
            (1_126_542_223, "5825968499681925994.xxxxxxxxxxxx"),
            (1_100_194_760, "15020730045108128000.xxxxxxxxxxx"),
            (970_724_117, "10364340604931497442.xxxxxxxxxxx"),
        ];
        assert_eq!(rows, expected.map(|(number, text)| (number, text.to_owned())));
        // Only 31 bits of the seed count.
        assert_eq!(RowGenerator::random(42 + (1 << 31), 8).next_i64(), keys[0]);
    }

    #[test]
    fn zipfian_numbers_favour_the_first() {
        let mut counts = [0_u32; 10];
        for thread in 0..2 {
            let mut keys = RowGenerator::zipfian(100, 10, thread, 8);
            for _ in 0..5000 {
                counts[(keys.next_i64() - 100) as usize] += 1;
            }
        }
        assert!(counts.iter().all(|count| *count > 0 && *count <= counts[0]), "{counts:?}");
        let take = |thread| {
            let mut keys = RowGenerator::zipfian(0, 1000, thread, 8);
            [(); 20].map(|()| keys.next_i64())
        };
        assert_eq!(take(0), take(0));
        assert_ne!(take(0), take(1));
    }

    #[test]
    fn threads_never_meet() {
        assert_eq!(span_per_thread(1000, 2, 1), 1000);
        assert_eq!(span_per_thread(1000, 2, 3), 3000);
        assert_eq!(span_per_thread(0, 2, 1), 0);
        assert_eq!(span_per_thread(-1, 2, 1), i64::MAX / 2);
        assert_eq!(span_per_thread(i64::MAX / 3, 2, 2), i64::MAX / 2);
    }
}
