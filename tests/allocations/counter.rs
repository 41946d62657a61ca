//! The allocator of this test: the system's, and it counts what one thread asks for while somebody looks.

use std::alloc::{GlobalAlloc, Layout, System};
use std::backtrace::Backtrace;
use std::cell::Cell;
use std::sync::Mutex;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering::SeqCst};

/// Allocations whose place in the source is kept.
const PLACES_MAX: usize = 24;
/// Functions that are told of each.
const FRAMES_MAX: usize = 7;

/// What one thread allocated while it was open.
#[derive(Default)]
pub struct Tally {
    open: AtomicBool,
    allocations: AtomicU64,
    bytes: AtomicU64,
    places: Mutex<Vec<(usize, Backtrace)>>,
}

impl Tally {
    /// A tally that lives as long as any thread could look at it.
    pub fn leaked() -> &'static Tally {
        Box::leak(Box::default())
    }

    /// From now on this thread's allocations count here.
    pub fn owns_this_thread(&'static self) {
        OWNER.set(Some(self));
    }

    /// Begins to count, or ends.
    pub fn open(&self, open: bool) {
        self.open.store(open, SeqCst);
    }

    /// Allocations since this was last asked, and bytes that were asked for.
    pub fn taken(&self) -> (u64, u64) {
        (self.allocations.swap(0, SeqCst), self.bytes.swap(0, SeqCst))
    }

    /// Where the first allocations came from.
    pub fn places(&self) -> String {
        let places = self.places.lock().unwrap();
        places.iter().map(|(bytes, place)| format!("  {bytes} bytes\n{}", frames(&place.to_string()))).collect()
    }

    fn note(&'static self, bytes: usize) {
        if !self.open.load(SeqCst) {
            return;
        }
        let before = self.allocations.fetch_add(1, SeqCst);
        self.bytes.fetch_add(bytes as u64, SeqCst);
        if before < PLACES_MAX as u64 {
            // What looking around allocates is nobody's.
            OWNER.set(None);
            let place = Backtrace::force_capture();
            self.places.lock().unwrap().push((bytes, place));
            OWNER.set(Some(self));
        }
    }
}

/// Of a backtrace the innermost functions that are neither the standard library's nor this file's.
fn frames(trace: &str) -> String {
    let lines: Vec<&str> = trace.lines().collect();
    let told =
        |pair: &&[&str]| pair[1].contains(" at ") && !pair[1].contains(" /rustc/") && !pair[1].contains("counter.rs");
    let short = |pair: &[&str]| {
        let (name, place) = (pair[0].trim(), pair[1].trim());
        format!("    {:.90}  {}\n", name, place.rsplit_once("/src/").map_or(place, |(_, file)| file))
    };
    lines.windows(2).filter(told).take(FRAMES_MAX).map(short).collect()
}

thread_local! {
    /// Whose allocations this thread's are. Needs neither an allocation nor a destructor.
    static OWNER: Cell<Option<&'static Tally>> = const { Cell::new(None) };
}

struct Counting;

#[global_allocator]
static ALLOCATOR: Counting = Counting;

fn note(bytes: usize) {
    if let Some(tally) = OWNER.get() {
        tally.note(bytes);
    }
}

// SAFETY: every request goes to the system's allocator unchanged, and its answer comes back unchanged.
unsafe impl GlobalAlloc for Counting {
    // SAFETY: what the caller promises of `layout` is promised on.
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        note(layout.size());
        // SAFETY: as the caller promised.
        unsafe { System.alloc(layout) }
    }

    // SAFETY: what the caller promises of `layout` is promised on.
    unsafe fn alloc_zeroed(&self, layout: Layout) -> *mut u8 {
        note(layout.size());
        // SAFETY: as the caller promised.
        unsafe { System.alloc_zeroed(layout) }
    }

    // SAFETY: what the caller promises of `block` and `layout` is promised on.
    unsafe fn realloc(&self, block: *mut u8, layout: Layout, size: usize) -> *mut u8 {
        note(size);
        // SAFETY: as the caller promised; `block` came from the system's allocator, as all do.
        unsafe { System.realloc(block, layout, size) }
    }

    // SAFETY: what the caller promises of `block` and `layout` is promised on.
    unsafe fn dealloc(&self, block: *mut u8, layout: Layout) {
        // SAFETY: as the caller promised; `block` came from the system's allocator, as all do.
        unsafe { System.dealloc(block, layout) }
    }
}
