import sys, time, importlib, traceback
sys.path.insert(0, "tests/field")
import numpy as np
import napkin as nk
from entries import FOUND
from napkin.check.inputs import given
from napkin.ir.evaluate import close_to
fam=sys.argv[1]; only=sys.argv[2:]
importlib.import_module(fam)
from napkin.studies.predicted import predicted
from napkin.studies.roofline import roofline
for e in FOUND[fam]:
    if only and e.name not in only: continue
    try:
        try:
            d=e.make()
        except nk.NapkinError as err:
            print(e.name,"TRACE-REFUSED", "ok" if e.refused and e.refused in str(err) else f"!! {err}", flush=True); continue
        if e.reference:
            rng=np.random.default_rng(0); sizes=d.with_sizes(**e.small).check_sizes({})
            g=given(d,None,e.ranges,sizes)
            xs=[g.values(d,n,sizes,rng) for n in d.inputs]
            got=d.evaluate(*xs); want=e.reference(*[np.asarray(x,float) for x in xs])
            got=got if isinstance(got,tuple) else (got,); want=want if isinstance(want,tuple) else (want,)
            errs=[close_to(a,np.asarray(b)) if a.shape==np.shape(b) else f"shape {a.shape} {np.shape(b)}" for a,b in zip(got,want,strict=True)]
            bad=[x for x in errs if not(isinstance(x,float) and x<1e-9)]
            if bad: print(e.name,"EVAL!!",errs, flush=True)
        t=time.time()
        try: p=nk.derive(d)
        except nk.NapkinError as err:
            print(e.name,"REFUSED", "ok" if e.refused and e.refused in str(err) else f"!! {err}", flush=True); continue
        t=time.time()-t
        s=predicted(p)
        ops=sum(r.operations/r.peak for r in map(roofline,p.kernels))
        bt=max(s.compulsory/p.machine.dram_rate, ops)
        t2=time.time()
        v=p.check(sizes=e.small,ranges=e.ranges,resources=False)
        t2=time.time()-t2
        print(f"{e.name:32s} k={len(p.kernels)} bytes/comp={s.moved/s.compulsory:6.2f} us={s.seconds*1e6:9.1f} t/bound={s.seconds/bt:6.2f} plan={t:5.1f}s chk={t2:5.1f}s {'ok' if v.ok else 'CHECK!! '+str(v)} {s.limited_by} {'(once %.2f)'%(sum(x.levels[0].bytes for x in map(roofline,p.kernels))/s.compulsory)}", flush=True)
    except Exception as err:
        print(e.name,"CRASH!!", type(err).__name__, str(err)[:1500], flush=True)
        if not isinstance(err, nk.NapkinError): traceback.print_exc(limit=-4)
