//! The only crate that opens files of a user's data directory for writing: it holds the directory
//! ([`Hold`]), turns its checksums on and off ([`enable`](enable()), [`disable`]), damages and restores
//! blocks ([`plan_damage`], [`DamagePlan`]), keeps an old primary from taking writes ([`fence`](fence())), and repairs damaged ones from other copies ([`plan_repair`],
//! [`RepairUndo`]).

mod corrupt;
mod enable;
mod fence;
mod hold;
mod repair;
mod write_error;

pub use corrupt::{
    ByteChange, CorruptError, Damage, DamagePlan, UNDO_SCHEMA, any_block, any_block_where,
    plan_damage,
};
pub use enable::{
    ChecksumsChanged, Earlier, EnableOptions, EnableProgress, EnableStep, EnableThreads,
    EnabledPages, Prediction, RefusedPage, disable, dry_run, enable, predict,
};
pub use fence::{fence, unfence};
pub use hold::{Hold, HoldPolicy, become_owner_of, data_directory_control};
pub use repair::{
    AskBlock, BlockAnswer, BlockRefusal, DamagedBlock, NotWritten, PageOrigin, REPAIR_BLOCKS_MAX,
    Rebuild, RebuiltPages, RedoPlan, RedoRefusal, RepairDirectory, RepairError, RepairHelp,
    RepairOptions, RepairPlan, RepairStep, RepairUndo, RunningTarget, UndoPage, plan_repair,
};
pub use write_error::{MaybeOverwritten, WriteError};

#[doc(hidden)]
pub mod fuzzed {
    //! Readers of what strangers may have made, for fuzzing.

    /// Whether these bytes are the undo file of a damage.
    pub fn undo_file(bytes: &[u8]) -> bool {
        crate::DamagePlan::read(bytes).is_some()
    }

    /// Whether these bytes are the undo file of a repair.
    pub fn repair_undo_file(bytes: &[u8]) -> bool {
        crate::RepairUndo::read(bytes).is_some()
    }
}
