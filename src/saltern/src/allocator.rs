//! The memory allocator of the process, and how it is set up.
//!
//! Requests are made on one thread and end on another, which glibc's allocator pays for with time
//! and with memory that it does not give back. SQLite and OpenSSL allocate here too. Few arenas,
//! quick decay and small caches of the threads, which are many, keep the process small; the
//! settings are read by jemalloc before `main`, from a symbol of a fixed name.
#![expect(
    unsafe_code,
    reason = "jemalloc finds its settings by the name of a symbol"
)]

use tikv_jemallocator::Jemalloc;

#[global_allocator]
static ALLOCATOR: Jemalloc = Jemalloc;

/// A C string, as jemalloc expects it.
#[repr(transparent)]
struct Settings(*const std::ffi::c_char);

// SAFETY: it points to a constant that nobody ever writes to.
unsafe impl Sync for Settings {}

// SAFETY: the name is the one that `tikv-jemalloc-sys` looks for, and its type is that of a C
// pointer to a string that ends in a zero byte.
#[unsafe(export_name = "malloc_conf")]
static SETTINGS: Settings = Settings(
    c"narenas:2,dirty_decay_ms:50,muzzy_decay_ms:0,tcache_max:2048,tcache_nslots_small_max:20"
        .as_ptr(),
);
