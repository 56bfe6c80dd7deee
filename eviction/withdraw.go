package eviction

// withdraw lists the soft victims whose evictions are requested and may be withdrawn: what they were chosen for
// is over. A signal that was not measured is not.
func (st *State) withdraw(cfg *Config, in *Input, d *Decision) {
	if !cfg.WithdrawsSoft || cfg.DryRun || in.Pass != Housekeeping {
		return
	}
	for i := range st.InFlight {
		f := &st.InFlight[i]
		if !f.Hard && !f.Unattended && f.Ended.IsZero() && in.Signals[f.Signal].Available.IsKnown() && !st.isShort(cfg, f.Signal) {
			d.Withdrawn = append(d.Withdrawn, f.UID)
		}
	}
}

// isShort says whether a threshold of a signal, or of another with the same shortage, is met.
func (st *State) isShort(cfg *Config, s Signal) bool {
	for i := range cfg.Thresholds {
		t := &cfg.Thresholds[i]
		if cfg.Layout.shortage(t.Signal) == cfg.Layout.shortage(s) && !st.Thresholds[i].FirstObserved.IsZero() {
			return true
		}
	}
	return false
}
