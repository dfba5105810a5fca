CREATE TABLE IF NOT EXISTS "public"."penstock_progress" (application text PRIMARY KEY, batch bigint, epoch bigint NOT NULL, token bigint NOT NULL, at timestamptz NOT NULL DEFAULT now())
CREATE TABLE IF NOT EXISTS "totals" ("order" text NOT NULL, "_clock" bigint, PRIMARY KEY ("order"))
