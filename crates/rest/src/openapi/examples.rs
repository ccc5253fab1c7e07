//! Values that the examples of several operations share.

use zlock_client::api::Stat;

/// Path of a ticket that holds the lock `/team/x`, in the examples of several operations.
pub(crate) const TICKET: &str =
    "/team/x/0000000000_67e5504410b1426f9247bb680e5fe0c8__WRIT__0000000000__lock__0000000000";
/// Path of a ticket that waits in the same queue behind [`TICKET`].
pub(crate) const WAITING: &str =
    "/team/x/0000000001_0f2b7a1c5f6d4a529a3e2f9de1a3c001__WRIT__0000000001__lock__0000000001";
/// Number to which the examples add small numbers to make zxids.
pub(crate) const ZXID: u64 = 1_838_489_600_000_000;

/// Returns the stat of a znode without children. `czxid` and `mzxid` are counted from [`ZXID`].
pub(crate) fn stat(czxid: u64, mzxid: u64, version: i32, ephemeral_owner: u64, data_length: u32) -> Stat {
    let ms = 1_795_248_151_131;
    Stat {
        czxid: ZXID + czxid,
        mzxid: ZXID + mzxid,
        ctime: ms,
        mtime: ms,
        version,
        cversion: 0,
        aversion: 0,
        ephemeral_owner,
        data_length,
        num_children: 0,
        pzxid: ZXID + czxid,
    }
}
