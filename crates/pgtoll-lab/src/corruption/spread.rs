//! Whether damage of a primary's page reaches the standby.

use pgtoll_cluster::Cluster;
use pgtoll_record::DamageSpread;

use super::pair::DamagedPair;
use super::{CorruptionError, LabContext};

/// Updates another row of the damaged page, so that the page is logged as a whole, and looks at both
/// servers.
pub(super) fn damage_spread(
    context: &LabContext<'_>,
    template: &Cluster,
    checksums: bool,
) -> Result<DamageSpread, CorruptionError> {
    let pair = DamagedPair::start(context, template)?;
    let standby_before = pair.row(&pair.standby)?;
    let mut connection = pair.primary.connect("postgres")?;
    // The first change of a page after it is logged as a whole.
    connection.execute("CHECKPOINT")?;
    let updated = connection.execute(UPDATE_NEIGHBOUR);
    let update_error = match updated {
        Ok(()) => None,
        Err(error) if error.sqlstate().is_some() => Some(error.to_string()),
        Err(error) => return Err(error.into()),
    };
    connection.close();
    pair.wait_for_replay(context)?;
    let spread = DamageSpread {
        checksums,
        update_error,
        standby_before,
        primary_after: pair.row(&pair.primary)?,
        standby_after: pair.row(&pair.standby)?,
    };
    pair.remove(context, true)?;
    Ok(spread)
}

/// The damaged row's neighbour.
const UPDATE_NEIGHBOUR: &str = "UPDATE victim SET changes = changes + 1 WHERE ctid = '(10,2)'";
