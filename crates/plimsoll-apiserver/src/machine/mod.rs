//! The one place where this crate calls what `plimsoll-apimachinery` does to objects, so that the pipeline reads
//! the same whatever the machinery learns.

mod apply;
mod check;
mod delete_options;
mod object;
mod patch;
mod read;
pub mod scale;
mod schemas;
mod show;

pub use plimsoll_apimachinery::select::selects;
pub use plimsoll_apimachinery::table::TableOptions;

pub use apply::{apply, check_apply, parse_apply, strict_apply};
pub use check::{deprecation, invalid, invalid_object, validate_create, validate_update, warnings};
pub use delete_options::decode_delete_options;
pub use object::{
    default, empty, finish, orphans_by_default, own_update, prepare_create, prepare_update, serve,
    settle_times, subresource_kind,
};
pub use patch::{PatchType, apply_patch, unsupported_patch};
pub use read::{decode, json_error, unread};
pub use schemas::{has_openapi_document, hash, openapi_document, openapi_index};
pub use show::{has_protobuf, is_sorted_table, protobuf_event, table, table_options, to_protobuf};
