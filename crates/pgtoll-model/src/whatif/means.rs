//! Mean lengths of images: of each fork, and of all, where one is unknown.

use crate::whatif::blocks::BlockState;
use crate::whatif::settings::{ImageCompression, ImageLengths};

/// Images of each fork, and of all.
#[derive(Debug, Default)]
pub(super) struct ImageMeans {
    forks: Vec<Mean>,
    all: Mean,
}

/// How long images are, and how much smaller those are that were compressed.
#[derive(Clone, Copy, Debug, Default)]
struct Mean {
    images: u64,
    bytes: u64,
    /// Bytes compressed, and before.
    compressed: [(u64, u64); ImageCompression::COUNT],
}

impl Mean {
    fn add(&mut self, image: &ImageLengths) {
        let uncompressed = u64::from(image[UNCOMPRESSED]);
        self.images += 1;
        self.bytes += uncompressed;
        for (sums, bytes) in self.compressed.iter_mut().zip(image).filter(|(_, item)| **item > 0) {
            sums.0 += u64::from(*bytes);
            sums.1 += uncompressed;
        }
    }
}

impl ImageMeans {
    /// Takes note of an image of the source.
    pub(super) fn learn(&mut self, fork: u32, image: &ImageLengths) {
        let fork = fork as usize;
        if self.forks.len() <= fork {
            self.forks.resize(fork + 1, Mean::default());
        }
        self.forks[fork].add(image);
        self.all.add(image);
    }

    /// An image with what is not known of it: as the images of its fork are, or as all are.
    pub(super) fn filled(&self, fork: u32, mut image: ImageLengths) -> ImageLengths {
        let means = [self.forks.get(fork as usize).copied().unwrap_or_default(), self.all];
        if image[UNCOMPRESSED] == 0 {
            let mean = means.iter().find_map(|mean| ratio(mean.bytes, mean.images));
            image[UNCOMPRESSED] = mean.unwrap_or(FULL_PAGE);
        }
        let bytes = image[UNCOMPRESSED];
        for (kind, length) in image.iter_mut().enumerate().filter(|(_, length)| **length == 0) {
            let as_others = means.iter().find_map(|mean| {
                let (compressed, before) = mean.compressed[kind];
                ratio(u64::from(bytes) * compressed, before)
            });
            *length = as_others.unwrap_or(bytes);
        }
        image
    }
}

const UNCOMPRESSED: usize = ImageCompression::OFF.index();

/// An image's header and a page's, of a page without anything.
const EMPTY_PAGE: u16 = 5 + 24;
/// An image of a page without a hole.
const FULL_PAGE: u16 = 5 + 8192;

/// The image of a page that was made again.
pub(super) fn empty_page() -> ImageLengths {
    let mut image = [0; ImageCompression::COUNT];
    image[UNCOMPRESSED] = EMPTY_PAGE;
    image
}

/// The most bytes by which an image can be longer.
pub(super) fn room(image: &ImageLengths) -> u16 {
    FULL_PAGE.saturating_sub(image[UNCOMPRESSED])
}

/// A record fills the page by so much.
pub(super) fn grow(state: &mut BlockState, by: i16) {
    state.image = grown(state.image, by);
}

/// The image of the page with these bytes more on it, or less; known lengths change alike.
pub(super) fn grown(mut image: ImageLengths, by: i16) -> ImageLengths {
    let before = u64::from(image[UNCOMPRESSED]);
    let after = image[UNCOMPRESSED].saturating_add_signed(by).clamp(EMPTY_PAGE, FULL_PAGE);
    for length in &mut image {
        let scaled = ratio(u64::from(*length) * u64::from(after), before);
        *length = scaled.unwrap_or(*length).min(FULL_PAGE);
    }
    image
}

fn ratio(sum: u64, count: u64) -> Option<u16> {
    let ratio = (sum + count / 2).checked_div(count)?;
    Some(u16::try_from(ratio).unwrap_or(u16::MAX))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_not_known_of_an_image_is_as_others_are() {
        let mut means = ImageMeans::default();
        assert_eq!(means.filled(0, [0; 5]), [FULL_PAGE; 5], "nothing is known at all");
        means.learn(0, &[4000, 4000, 0, 1000, 0]);
        means.learn(1, &[8000, 8000, 4000, 0, 0]);
        assert_eq!(means.filled(0, [0; 5]), [4000, 4000, 2000, 1000, 4000]);
        assert_eq!(means.filled(0, [0, 2000, 0, 0, 77]), [2000, 2000, 1000, 500, 77]);
        assert_eq!(means.filled(9, [0; 5]), [6000, 6000, 3000, 1500, 6000], "as all are");
    }

    #[test]
    fn images_grow_with_their_pages_and_no_further() {
        let mut state = BlockState { image: [1000, 1000, 0, 500, 0], ..BlockState::default() };
        grow(&mut state, 1000);
        assert_eq!(state.image, [2000, 2000, 0, 1000, 0]);
        grow(&mut state, i16::MAX);
        assert_eq!(state.image[0], FULL_PAGE);
        let mut unknown = BlockState::default();
        grow(&mut unknown, 100);
        assert_eq!(unknown.image, [0; 5]);
    }
}
