//! pgbench's distributions, hashes and permutation.
//!
//! Hashes and permutation are PostgreSQL's bit for bit, so that a script touches the same rows. The
//! distributions are the same, but not the streams: the generator is ours.

use pgtoll_format::SplitMix64;
use rand::RngExt;
use rand_pcg::Pcg64;

/// The least parameter of [`gaussian`].
pub(crate) const GAUSSIAN_MIN: f64 = 2.0;
/// The least parameter of [`zipfian`].
pub(crate) const ZIPFIAN_MIN: f64 = 1.001;
/// The largest parameter of [`zipfian`].
pub(crate) const ZIPFIAN_MAX: f64 = 1000.0;

/// All integers between the bounds equally often.
pub(crate) fn uniform(random: &mut Pcg64, from: i64, to: i64) -> i64 {
    random.random_range(from..=to)
}

/// The lower bound most often; at the upper one the density is down to exp(-`parameter`).
pub(crate) fn exponential(random: &mut Pcg64, from: i64, to: i64, parameter: f64) -> i64 {
    let cut = (-parameter).exp();
    let uniform = 1.0 - random.random::<f64>();
    let share = -(cut + (1.0 - cut) * uniform).ln() / parameter;
    at_share(from, to, share)
}

/// The middle most often; the bounds are `parameter` standard deviations away from it.
pub(crate) fn gaussian(random: &mut Pcg64, from: i64, to: i64, parameter: f64) -> i64 {
    loop {
        let deviation = normal(random);
        if (-parameter..parameter).contains(&deviation) {
            return at_share(from, to, (deviation + parameter) / (2.0 * parameter));
        }
    }
}

/// The k-th integer from the lower bound on with a frequency of k^-`parameter`: Devroye,
/// Non-Uniform Random Variate Generation, 1986, page 551.
#[expect(clippy::cast_precision_loss, reason = "as in pgbench")]
#[expect(clippy::cast_possible_truncation, reason = "the rank is at most the number of integers")]
pub(crate) fn zipfian(random: &mut Pcg64, from: i64, to: i64, parameter: f64) -> i64 {
    let ranks = to - from + 1;
    if ranks <= 1 {
        return from;
    }
    let power = parameter - 1.0;
    let b = power.exp2();
    loop {
        let u = random.random::<f64>();
        let v = random.random::<f64>();
        let rank = u.powf(-1.0 / power).floor();
        let t = (1.0 + 1.0 / rank).powf(power);
        if v * rank * (t - 1.0) / (b - 1.0) <= t / b && rank <= ranks as f64 {
            return from + (rank as i64 - 1).min(ranks - 1);
        }
    }
}

/// The time to the next event of a Poisson process, as a multiple of the average time.
pub(crate) fn gap(random: &mut Pcg64) -> f64 {
    -(1.0 - random.random::<f64>()).ln()
}

/// Box and Muller's method.
fn normal(random: &mut Pcg64) -> f64 {
    let radius = (2.0 * gap(random)).sqrt();
    radius * (std::f64::consts::TAU * random.random::<f64>()).sin()
}

#[expect(clippy::cast_precision_loss, clippy::cast_possible_truncation, reason = "as in pgbench")]
fn at_share(from: i64, to: i64, share: f64) -> i64 {
    let offset = ((to - from + 1) as f64 * share) as i64;
    // Where integers are too large for a double, the product is rounded up.
    from + offset.clamp(0, to - from)
}

/// FNV-1a of the number's eight bytes, the lowest first.
pub(crate) fn hash_fnv1a(value: i64, seed: i64) -> i64 {
    let basis = 0xcbf2_9ce4_8422_2325 ^ seed.cast_unsigned();
    let hash = value
        .to_le_bytes()
        .into_iter()
        .fold(basis, |hash, byte| (hash ^ u64::from(byte)).wrapping_mul(0x0100_0000_01b3));
    hash.cast_signed()
}

/// `MurmurHash64A` of the number's eight bytes.
pub(crate) fn hash_murmur2(value: i64, seed: i64) -> i64 {
    const FACTOR: u64 = 0xc6a4_a793_5bd1_e995;
    let mix = |word: u64| word ^ (word >> 47);
    let word = mix(value.cast_unsigned().wrapping_mul(FACTOR)).wrapping_mul(FACTOR);
    let hash = seed.cast_unsigned() ^ FACTOR.wrapping_mul(8) ^ word;
    let hash = mix(hash.wrapping_mul(FACTOR)).wrapping_mul(FACTOR);
    mix(hash).cast_signed()
}

/// Returns the image of `value` modulo `size` under a pseudorandom permutation of 0 to `size` - 1; the same as in
/// pgbench since PostgreSQL 15.
///
/// Six rounds, in each of which the lower and then the upper half, each a power of two, is
/// multiplied by an odd number, xored and rotated by a bit, and then everything is shifted.
pub(crate) fn permute(value: i64, size: i64, seed: i64) -> i64 {
    let size = size.cast_unsigned();
    if size < 2 {
        return 0;
    }
    let mut numbers = Xoroshiro::new(seed.cast_unsigned());
    let bits = size.ilog2();
    let mask = (1_u64 << bits) - 1;
    let mut at = value.cast_unsigned() % size;
    let scatter = |at: u64, factor: u64, other: u64| {
        let at = (at.wrapping_mul(factor) ^ other) & mask;
        ((at << 1) & mask) | (at >> (bits - 1))
    };
    for _ in 0..6 {
        let (factor, other) = (numbers.next() & mask | 1, numbers.next() & mask);
        if at <= mask {
            at = scatter(at, factor, other);
        }
        let (factor, other) = (numbers.next() & mask | 1, numbers.next() & mask);
        let from_top = size - 1 - at;
        if from_top <= mask {
            at = size - 1 - scatter(from_top, factor, other);
        }
        at = (at + numbers.up_to(size - 1)) % size;
    }
    at.cast_signed()
}

/// PostgreSQL's generator: xoroshiro128**, seeded by splitmix64.
struct Xoroshiro(u64, u64);

impl Xoroshiro {
    fn new(seed: u64) -> Self {
        let mut seeds = SplitMix64(seed);
        Self(seeds.draw(), seeds.draw())
    }

    fn next(&mut self) -> u64 {
        let Self(first, second) = *self;
        let mixed = second ^ first;
        *self = Self(first.rotate_left(24) ^ mixed ^ (mixed << 16), mixed.rotate_left(37));
        first.wrapping_mul(5).rotate_left(7).wrapping_mul(9)
    }

    /// 0 to `most`, which is not 0, equally often: the bits of `most`, again until they are no
    /// more than it.
    fn up_to(&mut self, most: u64) -> u64 {
        loop {
            let number = self.next() >> most.leading_zeros();
            if number <= most {
                return number;
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;
    use rand::SeedableRng;

    use super::*;

    fn bounds() -> impl Strategy<Value = (i64, i64)> {
        prop_oneof![
            (-1000..1000_i64, 0..1000_i64).prop_map(|(from, width)| (from, from + width)),
            (i64::MIN / 2..0, 0..i64::MAX / 2),
        ]
    }

    proptest! {
        #[test]
        fn random_numbers_stay_between_their_bounds(
            (from, to) in bounds(),
            seed: u64,
            positive in 1e-3..100.0,
        ) {
            let random = &mut Pcg64::seed_from_u64(seed);
            let range = from..=to;
            prop_assert!(range.contains(&uniform(random, from, to)));
            prop_assert!(range.contains(&exponential(random, from, to, positive)));
            prop_assert!(range.contains(&gaussian(random, from, to, GAUSSIAN_MIN + positive)));
            prop_assert!(range.contains(&zipfian(random, from, to, 1.1 + positive)));
        }
    }

    #[test]
    fn permutations_are_permutations() {
        for (size, seed) in [(1, 0), (2, 1), (3, 2), (4, 3), (5, 4), (1000, 5), (1024, 6)] {
            let mut images: Vec<i64> = (0..size).map(|item| permute(item, size, seed)).collect();
            images.sort_unstable();
            assert_eq!(images, (0..size).collect::<Vec<_>>(), "{size}");
        }
    }

    #[test]
    fn frequencies_are_those_of_the_distributions() {
        let random = &mut Pcg64::seed_from_u64(1);
        let mut share = |below: i64, draw: &dyn Fn(&mut Pcg64) -> i64| {
            let hits = (0..20_000).filter(|_| draw(random) < below).count();
            f64::from(u32::try_from(hits).unwrap()) / 20_000.0
        };
        let check = |found: f64, expected: f64| {
            assert!((found - expected).abs() < 0.015, "{found} is not {expected}");
        };
        check(share(25, &|random| uniform(random, 0, 99)), 0.25);
        // (1 - e^(-2.5 * 0.2)) / (1 - e^-2.5)
        check(share(20, &|random| exponential(random, 0, 99, 2.5)), 0.428_65);
        // Below the middle by one standard deviation of four.
        check(share(375, &|random| gaussian(random, 0, 999, 4.0)), 0.158_7);
        // 1 / (1 + 1/4 + ... + 1/100)
        check(share(1, &|random| zipfian(random, 0, 9, 2.0)), 0.645_25);
        let average: f64 = (0..20_000).map(|_| gap(random)).sum::<f64>() / 20_000.0;
        check(average / 10.0, 0.1);
    }
}
