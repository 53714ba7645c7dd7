-- When a budget was last used, and whether its session has ended: then nobody gets anything of it any more.

ALTER TABLE budgets ADD COLUMN used_at DOUBLE PRECISION NOT NULL DEFAULT 0;
ALTER TABLE budgets ADD COLUMN closed INTEGER NOT NULL DEFAULT 0;
UPDATE budgets SET used_at = extract(epoch FROM clock_timestamp());
