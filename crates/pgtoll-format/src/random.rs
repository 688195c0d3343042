//! Random numbers that are the same everywhere and for ever.

/// Steele's and Vigna's `SplitMix64`, with which PostgreSQL seeds its own generator (`pg_prng.c`).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct SplitMix64(pub u64);

impl SplitMix64 {
    /// The next number.
    pub fn draw(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9E37_79B9_7F4A_7C15);
        let mixed = (self.0 ^ (self.0 >> 30)).wrapping_mul(0xBF58_476D_1CE4_E5B9);
        let mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94D0_49BB_1331_11EB);
        mixed ^ (mixed >> 31)
    }

    /// One of the numbers below `end`, which is not 0.
    pub fn below(&mut self, end: u64) -> u64 {
        self.draw() % end
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// From the authors' program, seeded with 1234567.
    #[test]
    fn numbers_are_those_of_the_authors() {
        let mut random = SplitMix64(1_234_567);
        let numbers = [random.draw(), random.draw(), random.draw()];
        assert_eq!(
            numbers,
            [6_457_827_717_110_365_317, 3_203_168_211_198_807_973, 9_817_491_932_198_370_423]
        );
    }
}
