{
  description = "What does PostgreSQL's safety cost? Measured on your own machine.";

  inputs.nixpkgs.url = "github:NixOS/nixpkgs/nixpkgs-unstable";

  outputs = { self, nixpkgs }:
    let
      systems = [ "x86_64-linux" "aarch64-linux" ];
      each = make: nixpkgs.lib.genAttrs systems (system: make nixpkgs.legacyPackages.${system});
    in
    {
      packages = each (pkgs: {
        default = pkgs.rustPlatform.buildRustPackage {
          pname = "pgtoll";
          version = (nixpkgs.lib.importTOML ./Cargo.toml).workspace.package.version;
          src = self;
          cargoLock.lockFile = ./Cargo.lock;
          buildType = "distribution";
          cargoBuildFlags = [ "--package" "pgtoll" ];
          # The suite starts servers that it fetches.
          doCheck = false;
          nativeBuildInputs = [ pkgs.installShellFiles ];
          postInstall = ''
            $out/bin/pgtoll __package made
            installManPage made/man/*
            installShellCompletion --name pgtoll.bash made/completions/pgtoll.bash
            installShellCompletion --name _pgtoll --zsh made/completions/_pgtoll
            installShellCompletion --name pgtoll.fish made/completions/pgtoll.fish
          '';
          meta = {
            description = "Measures what PostgreSQL's safety costs, and checks that it works";
            homepage = "https://github.com/pgtoll/pgtoll";
            license = nixpkgs.lib.licenses.postgresql;
            mainProgram = "pgtoll";
            platforms = systems;
          };
        };
      });
    };
}
