use super::*;
use std::cell::Cell;

thread_local! {
    /// What [`paired`] says in this thread, in place of what the processor would have it say.
    pub(crate) static PAIRED: Cell<Option<bool>> = const { Cell::new(None) };
}

/// Every operation that has one result for one number of each vector, and those that move lanes.
struct All<'a>(&'a [[f32; 16]; 4]);

impl Job for All<'_> {
    type Out = Vec<[f32; 64]>;

    #[inline(always)]
    fn run<L: Lanes>(self, l: L) -> Vec<[f32; 64]> {
        let mut found = Vec::new();
        // The sixty-four numbers as rows of sixteen: four vectors hold four rows, or two.
        let rows = 4 / (16 / L::WIDTH);
        let flat = self.0.as_flattened();
        let wide = |at: usize| [0, 1, 2, 3].map(|j| l.read(&flat[at + j * L::WIDTH..]));
        let mut keep = |make: &dyn Fn(usize) -> [L::V; 4]| {
            let mut out = [0.0; 64];
            for at in (0..64).step_by(16 * rows) {
                for (j, v) in make(at).into_iter().enumerate() {
                    l.write(v, &mut out[at + j * L::WIDTH..]);
                }
            }
            found.push(out);
        };
        let (b, c) = (l.splat(0.75), l.splat(-0.3));
        keep(&|at| wide(at).map(|a| l.add(a, b)));
        keep(&|at| wide(at).map(|a| l.sub(a, b)));
        keep(&|at| wide(at).map(|a| l.mul(a, b)));
        keep(&|at| wide(at).map(|a| l.div(b, a)));
        keep(&|at| wide(at).map(|a| l.min(a, b)));
        keep(&|at| wide(at).map(|a| l.max(a, c)));
        keep(&|at| wide(at).map(|a| l.clamp(a, 0.5)));
        keep(&|at| l.rows(l.turn(l.fours(wide(at)))));
        keep(&|at| l.rows(l.fours(wide(at))));
        // Fused or not: what is exact either way.
        let (b, c) = (l.splat(0.5), l.splat(0.25));
        keep(&|at| wide(at).map(|a| l.fma(a, b, c)));
        keep(&|at| wide(at).map(|a| l.fms(a, b, c)));
        keep(&|at| wide(at).map(|a| l.fnma(a, b, c)));
        found
    }
}

#[test]
fn every_level_here_does_every_operation_alike() {
    // Sixteenths: small enough for exact products and sums.
    let mut x = [[0.0f32; 16]; 4];
    for (n, x) in x.as_flattened_mut().iter_mut().enumerate() {
        *x = (n as f32 * 37.0 % 64.0 - 31.5) / 16.0;
    }
    let levels: Vec<SimdLevel> = SimdLevel::all().collect();
    let wanted = Kernel::new(SimdLevel::Plain).run(All(&x));
    assert_eq!(wanted[8], *x.as_flattened(), "fours and back are where they were");
    for level in levels {
        assert_eq!(Kernel::new(level).level(), level);
        assert_eq!(Kernel::new(level).narrow().level(), level.min(SimdLevel::Avx2));
        assert_eq!(Kernel::new(level).run(All(&x)), wanted, "{level:?}");
    }
}
