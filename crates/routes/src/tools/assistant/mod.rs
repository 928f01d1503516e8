//! Tools of the `assistant` group.

pub mod approval_request;
pub mod bash;
mod change;
pub mod code_execution;
pub mod exec;
pub mod fs_append_file;
pub mod fs_apply_patch;
pub mod fs_rename_file;
pub mod fs_write_file;
pub mod http_fetch;
pub mod local_file_read;
pub mod process;
pub mod shell_command;
pub mod web_search;

use std::sync::Arc;

use self::{
    fs_append_file::FsAppendFile, fs_apply_patch::FsApplyPatch, fs_rename_file::FsRenameFile,
    fs_write_file::FsWriteFile,
};
use crate::{Catalog, files::Files};

/// The tools that change workspace files.
pub fn register_writers(catalog: Catalog, files: &Arc<Files>) -> Catalog {
    catalog
        .with(FsWriteFile::new(files))
        .with(FsAppendFile::new(files))
        .with(FsApplyPatch::new(files))
        .with(FsRenameFile::new(files))
}
