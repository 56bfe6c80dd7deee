"use strict";
// Runs before anything is drawn: the scheme that was chosen here last.
try {
  const chosen = localStorage.getItem("evictd-theme");
  if (chosen) document.documentElement.dataset.theme = chosen;
} catch { /* storage is off: the system's scheme */ }
