//! Gains of simulations since they were last brought up to date. They lie side by side in memory:
//! then a record costs a few instructions for each of the settings, several of which are done at
//! once.
//! memory: then a record costs a few instructions for each of the settings, several of which are done
//! at once.

use crate::whatif::blocks::Epoch;
use crate::whatif::simulation::CheckpointSimulation;

/// By simulation, in their order.
#[derive(Clone, Debug)]
pub(super) struct Gains {
    bytes: Vec<u32>,
    images: Vec<u32>,
    image_bytes: Vec<u32>,
    /// Bytes that all have gained besides.
    all: u64,
    /// The most that one may have gained.
    most: u32,
    /// The needs of the record that is being added.
    lengths: Vec<i32>,
}

/// The next record, which has 1020 MB at most, still fits into the sums' type.
const FULL: u32 = 1 << 30;

impl Gains {
    pub(super) fn new(simulations: usize) -> Self {
        Self {
            bytes: vec![0; simulations],
            images: vec![0; simulations],
            image_bytes: vec![0; simulations],
            all: 0,
            most: 0,
            lengths: vec![0; simulations],
        }
    }

    /// All simulations have this many bytes more.
    pub(super) fn add_to_all(&mut self, bytes: u64) {
        self.all += bytes;
    }

    /// How many bytes it is further than it knows.
    pub(super) fn bytes_ahead(&self, place: usize) -> u64 {
        self.all + u64::from(self.bytes[place])
    }

    /// A record was added that is at most so long; whether [`Self::settle`] is due before
    /// the next one.
    pub(super) fn is_full_after(&mut self, longest: u32) -> bool {
        self.most += longest;
        self.most > FULL
    }

    /// Brings the simulations up to date.
    pub(super) fn settle(&mut self, simulations: &mut [CheckpointSimulation]) {
        for (place, simulation) in simulations.iter_mut().enumerate() {
            simulation.advance(self.all + u64::from(self.bytes[place]));
            simulation.images(self.images[place].into(), self.image_bytes[place].into());
        }
        for sums in [&mut self.bytes, &mut self.images, &mut self.image_bytes] {
            sums.fill(0);
        }
        (self.all, self.most) = (0, 0);
    }

    /// The simulations of a stretch.
    pub(super) fn stretch(&mut self, from: usize, to: usize) -> Stretch<'_> {
        Stretch {
            bytes: &mut self.bytes[from..to],
            images: &mut self.images[from..to],
            image_bytes: &mut self.image_bytes[from..to],
            lengths: &mut self.lengths[from..to],
            all: self.all,
        }
    }
}

/// Simulations that lie next to each other, and the record that they gain.
pub(super) struct Stretch<'a> {
    bytes: &'a mut [u32],
    images: &'a mut [u32],
    image_bytes: &'a mut [u32],
    lengths: &'a mut [i32],
    all: u64,
}

/// An image as one of the compressions makes it.
#[derive(Clone, Copy, Debug)]
pub(super) struct Gained {
    pub(super) image_bytes: u32,
    /// By how much it makes the record longer.
    pub(super) more: i32,
}

impl Stretch<'_> {
    /// Their record begins with this many bytes, of which these are of images.
    pub(super) fn begin(&mut self, bytes: i32, images: u32, image_bytes: u32) {
        self.lengths.fill(bytes);
        if images > 0 {
            self.images.iter_mut().for_each(|image| *image += images);
            self.image_bytes.iter_mut().for_each(|image_byte| *image_byte += image_bytes);
        }
    }

    /// How many bytes it is further than it knows, before this record.
    pub(super) fn ahead(&self, place: usize) -> u64 {
        self.all + u64::from(self.bytes[place])
    }

    /// The image for all whose last checkpoint began after this.
    pub(super) fn image_after(&mut self, last: Epoch, boundaries: &[Epoch], gained: Gained) {
        let Gained { image_bytes, more } = gained;
        let sums = self.images.iter_mut().zip(&mut *self.image_bytes);
        let places = boundaries.iter().zip(&mut *self.lengths).zip(sums);
        for ((boundary, length), (images, bytes)) in places {
            // Neither branches nor checks, so that several are done at once. It is one or zero, and
            // sums are settled long before they are full.
            let needs = u32::from(last < *boundary);
            *images = images.wrapping_add(needs);
            *bytes = bytes.wrapping_add(if needs == 1 { image_bytes } else { 0 });
            *length = length.wrapping_add(if needs == 1 { more } else { 0 });
        }
    }

    /// The image for one of them.
    pub(super) fn image(&mut self, place: usize, gained: Gained) {
        self.images[place] += 1;
        self.image_bytes[place] += gained.image_bytes;
        self.lengths[place] += gained.more;
    }

    /// One of them has no such record.
    pub(super) fn leave_out(&mut self, place: usize) {
        self.lengths[place] = 0;
    }

    /// Adds the record, and says how long the longest is.
    pub(super) fn end(self) -> u32 {
        let mut longest = 0;
        for (length, bytes) in self.lengths.iter().zip(self.bytes) {
            let length = length.max(&0).cast_unsigned().wrapping_add(7) & !7;
            *bytes = bytes.wrapping_add(length);
            longest = longest.max(length);
        }
        longest
    }
}
